"""What a method may do with the network for one batch: passes, gradients, and steps of the optimiser."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.network import Network
from fenchel.adapters.normalization import mixed_names
from fenchel.adapters.optimizers import Optimizer
from fenchel.adapters.outputs import Scores, check_logits, is_plain
from fenchel.adapters.state import State, Tensors, all_finite, chosen, same
from fenchel.adapters.suited import SHIFT, guarded, has_moved
from fenchel.objectives import Objective, weighted_mean

LossFunction = Callable[[Tensors], Tensor | tuple[Tensor, Tensor]]
"""Maps moving parameters to a scalar, or to a scalar and whether any sample counts (a boolean tensor)."""


@dataclass(frozen=True)
class Gradient:
    """The gradient of a loss with respect to the moving parameters.

    Attributes:
        tensors: one per moving parameter.
        value: the value of the loss, a scalar.
        any_kept: whether any sample counts; a step along this gradient is taken only then.
        logits: the last logits that the loss was computed on, detached.
    """

    tensors: Tensors
    value: Tensor
    any_kept: Tensor
    logits: Tensor | None = None

    def norm(self) -> Tensor:
        """The Euclidean norm of all tensors together."""
        squares = [value.square().sum() for value in self.tensors.values()]
        return torch.stack(squares).sum().sqrt()


class HeadPass(NamedTuple):
    """What a pass has shown of the head: its name, what it was given, and the logits."""

    layer: str
    features: Tensor
    logits: Tensor


@dataclass
class Passes:
    """One batch, and the network it goes through. The step makes it; a method uses it and lets it go.

    Moving parameters are passed as `theta`, a dictionary such as `state.parameters` or a teacher's.
    Passes inside a loss that `gradient` or `descend` differentiates keep a graph, all others do not.

    Attributes:
        batch: what the model was called with. `batch.samples()` is its tensor of samples, and
            `batch.with_samples(x)` the same call on others.
        source: the source model's values of the moving parameters.
    """

    batch: Inputs
    source: Tensors
    source_network: Network = field(repr=False)
    network: Network = field(repr=False)
    scores: Scores = field(repr=False)
    optimizer: Optimizer = field(repr=False)
    statistics: Tensors = field(repr=False)
    seen: Tensors | None = field(default=None, repr=False)
    """What is known of the stream, while the batch is yet to enter statistics that suit it; else None."""
    head: str | None = None
    seed: int = 0
    trace: list[tuple[State, Gradient]] | None = field(default=None, repr=False)
    """Where every step that is taken leaves the state it started from and its gradient."""
    remembers: bool = False
    """Whether the output of the first pass with a graph is kept, as the prediction before an update."""

    def __post_init__(self) -> None:
        self.fine: Tensor | None = None
        self._guarded: Tensors | None = None
        self._shown: tuple[Tensors, Any] | None = None
        self._head_pass: tuple[Tensors, HeadPass] | None = None
        self._leaves: Tensors | None = None
        self._at: Tensors | None = None
        self._logits: Tensor | None = None
        self._met: Tensors | None = None

    # --- passes ----------------------------------------------------------------------------------

    def output(self, theta: Tensors, batch: Inputs) -> Any:
        """What the model returns for a batch; no graph."""
        known = self.remembered(theta) if batch is self.batch else None
        if known is not None:
            return known
        with torch.no_grad():
            return self._run(theta, batch)

    def logits(self, theta: Tensors, batch: Inputs) -> Tensor:
        """The logits of a batch, (samples, ..., classes)."""
        output = self._run(theta, batch)
        logits = self._picked(output, batch)
        if self.remembers and theta is self._leaves and batch is self.batch and is_plain(output):
            shown = pytree.tree_map_only(Tensor, Tensor.detach, output)
            self._shown, self.remembers = (self._at or {}, shown), False
        return logits

    def features(self, theta: Tensors, batch: Inputs) -> tuple[Tensor, Tensor]:
        """What the head is given, (samples, ..., features), and the logits that it makes of it.

        The head is the last linear layer to run, or the layer that `features=` of `adapt` names.
        """
        found = self._through_head(theta, batch)
        return found.features, found.logits

    def head_weights(self, theta: Tensors, batch: Inputs) -> tuple[Tensor, Tensor]:
        """The weights of the head, (classes, features), and its biases, (classes,).

        It must be a linear layer with one row of weights per class.
        """
        found = self._through_head(theta, batch)
        layer = self.network.module.get_submodule(found.layer)
        classes = found.logits.shape[-1]
        if not isinstance(layer, nn.Linear) or layer.out_features != classes:
            raise ValueError(
                f"this method needs a linear head with one row of weights for each of the {classes} "
                f"classes; {found.layer!r} is {layer}. Name the layer that makes the logits: "
                "features='head'."
            )
        tensors = {**self.network.fixed, **theta}
        weight = tensors[f"{found.layer}.weight".removeprefix(".")]
        if layer.bias is None:
            return weight, weight.new_zeros(classes)
        return weight, tensors[f"{found.layer}.bias".removeprefix(".")]

    def logits_in(self, output: Any, batch: Inputs) -> Tensor:
        """The logits in what the model returned for a batch, (samples, ..., classes)."""
        return batch.whole(self.scores(output))

    def source_logits(self, batch: Inputs) -> Tensor:
        """The logits of the source model as it is, its own statistics included; no graph."""
        with torch.no_grad():
            return self._checked(self.source_network({}, batch), batch)

    @property
    def source_statistics(self) -> Tensors:
        """The source model's running statistics, by name. `theta` may hold others in their place."""
        return {name: self.network.fixed[name] for name in mixed_names(self.network.module)}

    def mixing_logits(self, theta: Tensors, batch: Inputs, weight: float) -> tuple[Tensor, Tensors]:
        """The logits of a batch that enters the running statistics in `theta`, and these after it.

        The batch is normalised by (1 - weight) x what `theta` holds + weight x its own statistics, and
        gradients flow through the latter. For a setting `statistics="source"`.
        """
        network = replace(self.network, run=functional_call)
        with network.mixing_in(weight) as statistics:
            output = network({**theta, **self.statistics}, batch)
        return self._picked(output, batch), statistics

    def with_logits(self, output: Any, logits: Tensor) -> Any:
        """The model's output with other logits, (samples, ..., classes), in the place of its own."""
        return self.scores.replaced(output, self.batch.part(logits))

    def remember(self, theta: Tensors, output: Any) -> None:
        """Record what the model returns for the batch at `theta`, so that it is not computed again."""
        self._shown = None if output is None else (theta, output)

    def remembered(self, theta: Tensors) -> Any:
        """What the model returns for the batch at `theta`, if that is known; else None."""
        return self._shown[1] if self._shown is not None and same(self._shown[0], theta) else None

    # --- losses ----------------------------------------------------------------------------------

    def loss(self, objective: Objective, batch: Inputs) -> LossFunction:
        """An objective over a batch, as a function of the moving parameters."""

        def value(theta: Tensors) -> tuple[Tensor, Tensor]:
            calls = self._views(objective, batch)
            if calls is None:
                logits = self.logits(theta, batch)
            else:  # (views, samples, ..., classes)
                logits = torch.stack([self.logits(theta, call) for call in calls])
            return self.mean(objective(logits), objective.weights(logits))

        return value

    def mean(self, values: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The mean of weight x value over the samples whose weight is above 0, and if there are any."""
        return weighted_mean(values, weights)

    # --- moving ----------------------------------------------------------------------------------

    def gradient(self, loss: LossFunction, at: Tensors) -> Gradient:
        """The gradient of a loss at the moving parameters `at`."""
        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in at.items()}
            self._leaves, self._at, self._logits = leaves, at, None
            found = loss(leaves)
            value, any_kept = found if isinstance(found, tuple) else (found, None)
            if not value.requires_grad:
                raise ValueError(
                    "the logits depend on none of the moving parameters, so there is no gradient to follow. "
                    "Check that neither logits= nor the model detaches them, and which parameters= move."
                )
            tensors = torch.autograd.grad(
                value, list(leaves.values()), allow_unused=True, materialize_grads=True
            )
        if any_kept is None:
            any_kept = torch.ones((), dtype=torch.bool, device=value.device)
        logits = None if self._logits is None else self._logits.detach()
        self._leaves = self._at = self._logits = None
        return Gradient(dict(zip(at, tensors, strict=True)), value.detach(), any_kept, logits)

    def follow(self, state: State, gradient: Gradient) -> State:
        """One step of the optimiser along a gradient, from the state's parameters.

        It does not happen where anything is not finite or no sample counts. Nothing waits for the
        device to learn which.
        """
        if self.trace is not None:
            self.trace.append((state, gradient))
        parameters, moments = self.optimizer.update(
            state.parameters, gradient.tensors, state.moments
        )
        fine = gradient.value.isfinite() & all_finite(gradient.tensors.values())
        fine = fine & all_finite(parameters.values())
        allowed = fine & gradient.any_kept
        self.fine = fine if self.fine is None else self.fine & fine
        self._guarded = chosen(allowed, parameters, state.parameters)
        return replace(
            state,
            parameters=self._guarded,
            moments=chosen(allowed, moments, state.moments),
            counts={
                "updates": state.counts["updates"] + allowed,
                "non_finite": state.counts["non_finite"] + ~fine,
                "none_kept": state.counts["none_kept"] + (fine & ~gradient.any_kept),
            },
        )

    def descend(self, state: State, loss: LossFunction, at: Tensors | None = None) -> State:
        """One step of the optimiser from the state, along the gradient there or at other parameters."""
        return self.follow(state, self.gradient(loss, state.parameters if at is None else at))

    @cached_property
    def generator(self) -> torch.Generator:
        """The source of all random draws: equal for equal seeds and numbers of the batch."""
        return torch.Generator().manual_seed(self.seed)

    def vouches_for(self, parameters: Tensors) -> bool:
        """Whether `follow` returned these very parameters, and so has checked that they are finite."""
        return parameters is self._guarded

    # --- inside ----------------------------------------------------------------------------------

    @property
    def moved(self) -> Tensor | None:
        """How certain it is that the stream is not the source's, 0 to 1, where statistics suit it."""
        return None if self._met is None or SHIFT not in self._met else has_moved(self._met[SHIFT])

    def noted_in(self, state: State) -> State:
        """The state with the statistics that the batch has entered."""
        if self._met is None:
            return state
        return replace(state, statistics=self.statistics, seen=self._met)

    def _run(self, theta: Tensors, batch: Inputs, network: Network | None = None) -> Any:
        network = network or self.network
        with self._sharing(theta, batch):
            if self.seen is None or network.suiting is None or batch is not self.batch:
                return network({**theta, **self.statistics}, batch)
            with network.suiting.meeting(self.seen) as met:
                output = network({**theta, **self.statistics}, batch)
        self.statistics, self._met = guarded(met, self.statistics, self.seen)
        self.seen = None
        return output

    def _through_head(self, theta: Tensors, batch: Inputs) -> HeadPass:
        """A pass that notes what the head is given. Without a graph, one for the batch is enough."""
        last = self._head_pass
        once = batch is self.batch and not torch.is_grad_enabled()
        if once and last is not None and same(last[0], theta):
            return last[1]
        network = replace(self.network, run=functional_call)
        with network.showing_head_inputs(self.head) as seen:
            output = self._run(theta, batch, network)
        if not seen:
            raise ValueError(
                "features are the input of the network's last linear layer, and no such layer ran. Name "
                "the layer that makes the logits: features='head'."
            )
        (layer, features), *_ = seen.items()
        found = HeadPass(layer, batch.whole(features), self._picked(output, batch))
        if once:
            self._head_pass, self._shown = (theta, found), (theta, output)
        return found

    def _sharing(self, theta: Tensors, batch: Inputs) -> AbstractContextManager[None]:
        """The first pass over the batch keeps what no moving parameter reaches, later ones use it.

        Autograd tells what they reach, so the first must be one in which all of them need gradients.
        """
        reuse = self.network.reuse
        if reuse is None or batch is not self.batch:
            return nullcontext()
        if reuse.holds:
            return reuse.returning()
        differentiates = torch.is_grad_enabled() and theta and _all_need_gradients(theta.values())
        return reuse.keeping() if differentiates else nullcontext()

    def _picked(self, output: Any, batch: Inputs) -> Tensor:
        self._logits = logits = self._checked(output, batch)
        return logits

    def _checked(self, output: Any, batch: Inputs) -> Tensor:
        """The logits in an output, of the whole batch where this process has a share of it."""
        logits = self.scores(output)
        check_logits(logits, len(batch))
        return batch.whole(logits)

    def _views(self, objective: Objective, batch: Inputs) -> list[Inputs] | None:
        """The views that an objective makes; drawn for the whole batch, whoever has which part of it."""
        if type(objective).make_views is Objective.make_views:
            return None
        views = objective.make_views(batch.whole(batch.samples()), self.generator)
        return None if views is None else [batch.with_part_of(view) for view in views]


def _all_need_gradients(tensors: Iterable[Tensor]) -> bool:
    return all(tensor.requires_grad for tensor in tensors)
