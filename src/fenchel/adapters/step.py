"""The adaptation step as a pure function: (state, inputs) -> (state', output).

The network runs through `torch.func.functional_call` on a skeleton that shares the user's tensors, with
the moving parameters and the running statistics taken from the state. A step that must not happen
(something non-finite, no sample kept) is undone by `torch.where` on the device: no synchronisation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from fenchel.adapters.guards import check_logits
from fenchel.adapters.optimizers import Optimizer
from fenchel.adapters.reuse import Reuse
from fenchel.adapters.state import State, Tensors
from fenchel.objectives import Objective, mean_over_kept


@dataclass(frozen=True)
class Inputs:
    """The arguments of one call of the model; the first tensor among them holds the samples."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def samples(self) -> Tensor:
        """The tensor whose first axis counts the samples."""
        for value in pytree.tree_leaves((self.args, self.kwargs)):
            if isinstance(value, Tensor) and value.ndim > 0:
                return value
        raise TypeError(
            "the adapted model needs a tensor of samples as one of its arguments; got "
            f"{[type(value).__name__ for value in (*self.args, *self.kwargs.values())]}."
        )

    def with_samples(self, samples: Tensor) -> Inputs:
        """The same call on other samples."""
        old = self.samples()
        return self._mapped(lambda value: samples if value is old else value)

    def in_channels_last(self) -> Inputs:
        """The same call with images in channels-last memory, where convolutions are fastest."""
        return self.with_samples(self.samples().contiguous(memory_format=torch.channels_last))

    def copied(self) -> Inputs:
        """The same call on copies, for a model that writes into what it is given."""
        return self._mapped(Tensor.clone)

    def finite(self) -> Tensor:
        """Whether every sample is finite; other arguments, such as masks, need not be."""
        return self.samples().isfinite().all()

    def _mapped(self, function: Callable[[Tensor], Tensor]) -> Inputs:
        return Inputs(*pytree.tree_map_only(Tensor, function, (self.args, self.kwargs)))


@dataclass(frozen=True)
class Network:
    """The skeleton and the tensors of the user's model that stay as they are."""

    module: nn.Module
    fixed: Mapping[str, Tensor]
    scratch: Mapping[str, Tensor]
    """Buffers that a module might write into as it runs: every pass starts from copies of them."""
    run: Callable[..., Any]
    """`functional_call`, or its compiled form."""
    reuse: Reuse | None = None
    """What the passes over one batch share, where the modules are run as they are."""

    def __call__(self, moving: Tensors, inputs: Inputs) -> Any:
        """The model's output with the moving tensors in place of its own."""
        buffers = {name: value.clone() for name, value in self.scratch.items()}
        call = inputs.copied()
        return self.run(self.module, {**self.fixed, **buffers, **moving}, call.args, call.kwargs)


@dataclass(frozen=True)
class Step:
    """Everything that decides what happens to a batch, and nothing that changes."""

    network: Network
    mixing: Network | None
    """The network that lets the batch enter the running statistics, where these are a mix."""
    objective: Objective | None
    optimizer: Optimizer
    steps: int
    predict: Literal["after", "before"]
    logits: Callable[[Any], Tensor]
    seed: int

    def __call__(self, state: State, inputs: Inputs, *, update: bool = True) -> tuple[State, Any]:
        """Adapt on one batch and predict it; without the update, running statistics still move."""
        state, output = self._mixed_in(state, inputs)
        try:
            if self.objective is not None and update:
                state, output = self._adapted(state, inputs)
            elif output is None:
                output = self._predicted(state, inputs)
        finally:
            if self.network.reuse is not None:
                self.network.reuse.forget()
        return replace(state, step=state.step + 1), output

    def _adapted(self, state: State, inputs: Inputs) -> tuple[State, Any]:
        before = self.predict == "before"
        state, output = self._updated(state, inputs, with_output=before)
        for _ in range(self.steps - 1):
            state, _ = self._updated(state, inputs, with_output=False, again=True)
        if not before:
            output = self._predicted(state, inputs)
        return state, output

    def predict_only(self, state: State, inputs: Inputs) -> Any:
        """The prediction of the state as it is."""
        return self._predicted(state, inputs)

    def _predicted(self, state: State, inputs: Inputs) -> Any:
        with torch.no_grad(), self._passing(again=True):
            return self.network({**state.parameters, **state.statistics}, inputs)

    def _passing(self, *, again: bool) -> AbstractContextManager[None]:
        """The first pass over a batch keeps what a later one may use again."""
        reuse = self.network.reuse
        if reuse is None:
            return nullcontext()
        return reuse.returning() if again else reuse.keeping()

    def _mixed_in(self, state: State, inputs: Inputs) -> tuple[State, Any]:
        """Let the batch enter the running statistics, where the adapter keeps such a mix."""
        if self.mixing is None:
            return state, None
        statistics = {name: value.clone() for name, value in state.statistics.items()}
        with torch.no_grad():
            output = self.mixing({**state.parameters, **statistics}, inputs)
        fine = inputs.finite() & _all_finite(statistics.values())
        counts = dict(state.counts)
        if self.objective is None:  # else the update counts it
            counts["non_finite"] = counts["non_finite"] + ~fine
        statistics = _chosen(fine, statistics, state.statistics)
        return replace(state, statistics=statistics, counts=counts), output

    def _updated(
        self, state: State, inputs: Inputs, *, with_output: bool, again: bool = False
    ) -> tuple[State, Any]:
        """One gradient step of the moving parameters; on request the prediction before it, too."""
        assert self.objective is not None
        with torch.enable_grad():
            moving = {
                name: value.detach().requires_grad_() for name, value in state.parameters.items()
            }
            logits, output = self._scores(moving, state, inputs, with_output, again)
            loss, any_kept = mean_over_kept(self.objective(logits), self.objective.keep(logits))
            gradients = dict(
                zip(
                    moving,
                    torch.autograd.grad(
                        loss, list(moving.values()), allow_unused=True, materialize_grads=True
                    ),
                    strict=True,
                )
            )
        fine = inputs.finite() & loss.detach().isfinite() & _all_finite(gradients.values())
        parameters, moments = self.optimizer.update(state.parameters, gradients, state.moments)
        fine = fine & _all_finite(parameters.values())
        allowed = fine & any_kept
        counts = {
            "updates": state.counts["updates"] + allowed,
            "non_finite": state.counts["non_finite"] + ~fine,
            "none_kept": state.counts["none_kept"] + (fine & ~any_kept),
        }
        state = replace(
            state,
            parameters=_chosen(allowed, parameters, state.parameters),
            moments=_chosen(allowed, moments, state.moments),
            counts=counts,
        )
        return state, output

    def _scores(
        self, moving: Tensors, state: State, inputs: Inputs, with_output: bool, again: bool
    ) -> tuple[Tensor, Any]:
        """The logits that the objective sees, and on request the plain prediction."""
        assert self.objective is not None
        tensors = {**moving, **state.statistics}
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + state.step)
        views = self.objective.make_views(inputs.samples(), generator)
        if views is None:
            with self._passing(again=again):
                output = self.network(tensors, inputs)
            logits = self._picked(output, inputs)
            if with_output and _is_plain(output):
                return logits, pytree.tree_map_only(Tensor, Tensor.detach, output)
        else:
            seen = [inputs.with_samples(view) for view in views]
            logits = torch.stack([self._picked(self.network(tensors, x), x) for x in seen])
        return logits, self._predicted(state, inputs) if with_output else None

    def _picked(self, output: Any, inputs: Inputs) -> Tensor:
        logits = self.logits(output)
        check_logits(logits, inputs.samples().shape[0])
        return logits


def _is_plain(output: Any) -> bool:
    """Whether all tensors of an output are within reach, so that it can be cut off its graph."""
    return all(
        isinstance(leaf, (Tensor, bool, int, float, str, type(None)))
        for leaf in pytree.tree_leaves(output)
    )


def _all_finite(tensors: Any) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors]).isfinite().all()


def _chosen(condition: Tensor, new: Tensors, old: Tensors) -> Tensors:
    """`new` where the condition holds, else `old`; what did not exist before is zero.

    Some optimisers of `torch.optim` count their steps on the host, hence the condition's move.
    """
    return {
        name: torch.where(condition.to(value.device), value, old.get(name, torch.zeros_like(value)))
        for name, value in new.items()
    }
