"""The user's model as steps run it: one set of skeletons per step at work.

A skeleton is a copy of the model's modules that shares every tensor with the model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.hooks import RemovableHandle

from fenchel.adapters.group import a_pass_over
from fenchel.adapters.inputs import Inputs
from fenchel.adapters.instance import correct_per_sample
from fenchel.adapters.mixing import mix_in_statistics, mix_with_batch
from fenchel.adapters.normalization import (
    Statistics,
    mixed_names,
    note_statistics,
    recorded_statistics,
    rule_of,
    skeleton,
    use_batch_statistics,
)
from fenchel.adapters.reuse import Reuse
from fenchel.adapters.shared import use_statistics_of_all
from fenchel.adapters.state import Tensors
from fenchel.adapters.suited import Suiting
from fenchel.adapters.winograd import use_winograd


@dataclass(frozen=True)
class Network:
    """A skeleton and the tensors of the user's model that stay as they are."""

    module: nn.Module
    fixed: Mapping[str, Tensor]
    scratch: Mapping[str, Tensor]
    """Buffers that a module may write into as it runs; every pass starts from copies of them."""
    run: Callable[..., Any]
    """`functional_call`, or its compiled form."""
    reuse: Reuse | None = None
    """What the passes over one batch share, where the modules are run as they are."""
    noted: Mapping[str, Tensor] = field(default_factory=dict)
    """The batch's statistics in the latest pass, where layers use them."""
    written: Mapping[str, Tensor] = field(default_factory=dict)
    """The buffers into which layers write as they run: nobody else's may take their place."""
    suiting: Suiting | None = None
    """What lets a pass choose the statistics by its batch, where they suit the batch."""

    def __call__(self, moving: Tensors, inputs: Inputs) -> Any:
        """The model's output with the moving tensors in place of its own."""
        buffers = {name: value.clone() for name, value in self.scratch.items()}
        call = inputs.copied()
        if inputs.shares is not None:
            moving = inputs.shares.entering(moving)
        tensors = {**self.fixed, **buffers, **moving, **self.written}
        with a_pass_over(inputs.shares):
            return self.run(self.module, tensors, call.args, call.kwargs)

    @contextmanager
    def showing_head_inputs(self, layer: str | None) -> Iterator[dict[str, Tensor]]:
        """In the block, passes leave the head (`layer`, or the last linear one to run) and its input."""
        heads = {
            name: module
            for name, module in self.module.named_modules()
            if (isinstance(module, nn.Linear) if layer is None else name == layer)
        }
        seen: dict[str, Tensor] = {}

        def note(name: str, module: nn.Module, given: tuple[Any, ...]) -> None:
            seen.clear()
            seen[name] = given[0]

        hooks = [
            module.register_forward_pre_hook(partial(note, name)) for name, module in heads.items()
        ]
        with _removed_after(hooks):
            yield seen

    @contextmanager
    def mixing_in(self, weight: float) -> Iterator[Tensors]:
        """In the block, a batch enters the running statistics it is normalised by, which are left here."""
        statistics: Tensors = {}
        with _removed_after(mix_with_batch(self.module, weight, statistics)):
            yield statistics


@contextmanager
def _removed_after(hooks: Sequence[RemovableHandle]) -> Iterator[None]:
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@dataclass(frozen=True)
class Networks:
    """The skeletons that one step works with. While it does, nobody else touches them."""

    source: Network
    """The model as it is."""
    moving: Network
    """The model under the adapter's statistics, with the moving tensors taken from the state."""
    mixing: Network | None
    """The network that lets the batch enter the running statistics, where these are a mix."""

    def forget(self) -> None:
        """Let go of what the passes over a batch shared."""
        if self.moving.reuse is not None:
            self.moving.reuse.forget()


@dataclass(frozen=True)
class Blueprint:
    """All that skeletons are made from. They share every tensor of the model."""

    model: nn.Module
    run: Callable[..., Any]
    statistics: Statistics
    moving: Sequence[str]
    winograd: bool
    fixed: Mapping[str, Tensor]
    scratch: Mapping[str, Tensor]
    shares: bool = False
    """Whether batches are shared with other processes."""

    @staticmethod
    def of(
        model: nn.Module,
        run: Callable[..., Any],
        statistics: Statistics,
        moving: Sequence[str],
        winograd: bool,
        shares: bool = False,
    ) -> Blueprint:
        """The blueprint of a model, its tensors as they are now."""
        fixed = {name: ordinary(value) for name, value in model.named_parameters()}
        scratch = {name: value.detach().clone() for name, value in model.named_buffers()}
        recorded = [name for name in recorded_statistics(model) if name in scratch]
        fixed |= {name: scratch.pop(name) for name in recorded}
        return Blueprint(model, run, statistics, moving, winograd, fixed, scratch, shares)

    @property
    def mixes(self) -> bool:
        """Whether batches enter running statistics."""
        return not isinstance(self.statistics, str) and bool(mixed_names(self.model))

    @property
    def suits(self) -> bool:
        """Whether statistics suit the batch."""
        return self.statistics == "auto" and bool(mixed_names(self.model))

    @property
    def compiled(self) -> bool:
        """Whether the network is run through a compiler."""
        return self.run is not functional_call

    @torch.inference_mode(False)
    def networks(self) -> Networks:
        """A new set of skeletons."""
        source = Network(self._skeleton(), self.fixed, self.scratch, self.run)
        moving, mixing = source, None
        if self.statistics == "batch" and self.shares:
            twin = skeleton(self.model)
            noted = use_statistics_of_all(twin, every_layer=True)
            moving = replace(source, module=twin, noted=noted)
        elif self.statistics == "batch":
            twin = use_batch_statistics(skeleton(self.model))
            noted = note_statistics(twin)
            moving = replace(source, module=twin, noted=noted, written=noted)
        elif self.suits:
            twin = self._skeleton()
            suiting = Suiting(twin, self.fixed)
            # Never compiled: a hook decides on the statistics.
            moving = replace(source, module=twin, run=functional_call, suiting=suiting)
        elif (rule := rule_of(self.statistics)) is not None:
            name, number = rule
            used: Tensors = {}
            moving = replace(source, module=self._skeleton(), noted=used)
            if name == "mix":
                mix_with_batch(moving.module, number, used)
            else:
                correct_per_sample(moving.module, number)
        elif not isinstance(self.statistics, str) and self.mixes:
            twin = mix_in_statistics(self._skeleton(), self.statistics)
            # Never compiled: the compiler takes modules that differ in their hooks for the same.
            mixing = replace(source, module=twin, run=functional_call)
        if self.moving and not self.compiled:
            # On a skeleton of its own: the source's passes must not use what an update kept.
            twin = moving.module if moving is not source else self._skeleton()
            if self.winograd:
                use_winograd(twin)
            moving = replace(moving, module=twin, reuse=Reuse(twin, self.moving))
        return Networks(source, moving, mixing)

    def _skeleton(self) -> nn.Module:
        """A skeleton whose layers use their own statistics, as far as they have any."""
        twin = skeleton(self.model)
        if self.shares:
            use_statistics_of_all(twin, every_layer=False)
        return twin


class Workshop:
    """Lends out sets of skeletons, so that steps may run in several threads at once.

    `functional_call` swaps a module's tensors while it runs, so two passes at a time need two
    skeletons. There are as many sets as steps were ever at work together. Compiled networks, whose
    compiler knows one skeleton, are lent to one step at a time.
    """

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self._idle = [blueprint.networks()]
        self._turn = threading.Lock() if blueprint.compiled else None

    @contextmanager
    def lent(self) -> Iterator[Networks]:
        """In the block, a set of skeletons that nobody else uses."""
        if self._turn is None:
            with self._taken() as networks:
                yield networks
        else:
            with self._turn, self._taken() as networks:
                yield networks

    @contextmanager
    def _taken(self) -> Iterator[Networks]:
        try:
            networks = self._idle.pop()
        except IndexError:
            networks = self.blueprint.networks()
        try:
            yield networks
        finally:
            networks.forget()
            self._idle.append(networks)


def ordinary(tensor: Tensor) -> Tensor:
    """Tensors made in inference mode cannot take part in a backward pass; their copies can."""
    return tensor.clone() if tensor.is_inference() else tensor.detach()
