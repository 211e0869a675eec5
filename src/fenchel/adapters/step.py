"""The adaptation step as a pure function: (state, inputs) -> (state', output).

The network runs through `torch.func.functional_call` on a skeleton: a copy of the modules
that shares the user's tensors. The moving parameters and the running statistics come from the state.
The method decides what happens to a batch. A step that must not happen (something non-finite, no sample
kept) is undone by `torch.where` on the device: no synchronisation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fenchel.adapters.correlated import corrected, with_classes
from fenchel.adapters.inputs import Inputs
from fenchel.adapters.likelihood import Probabilities, are_copies
from fenchel.adapters.method import Method
from fenchel.adapters.network import Networks, Workshop
from fenchel.adapters.optimizers import Optimizer
from fenchel.adapters.outputs import Scores
from fenchel.adapters.passes import Gradient, Passes
from fenchel.adapters.seen import with_batch
from fenchel.adapters.state import State, Tensors, all_finite, chosen

Trace = list[tuple[State, Gradient]]


@dataclass(frozen=True)
class Step:
    """Everything that decides what happens to a batch, and nothing that changes.

    Several threads may call it at once, each with a state of its own.
    """

    workshop: Workshop
    method: Method
    optimizer: Optimizer
    scores: Scores
    source: Tensors
    """The source model's values of the moving parameters."""
    steps: int = 1
    predict: Literal["after", "before"] = "after"
    head: str | None = None
    seed: int = 0
    probabilities: Probabilities | None = None
    """Where outputs are corrected for correlated labels: what a model's logits say of the classes."""

    def __call__(self, state: State, inputs: Inputs, *, update: bool = True) -> tuple[State, Any]:
        """Adapt on one batch and predict it; without the update, running statistics still move."""
        state, output = self.predicted(state, inputs, update=update)
        return self.corrected(state, output, inputs)

    def predicted(self, state: State, inputs: Inputs, *, update: bool = True) -> tuple[State, Any]:
        """The same without the correction of the output."""
        with torch.no_grad(), self.workshop.lent() as networks:
            before, passes = self._begun(networks, state, inputs)
            after = self._updated(networks, before, passes) if update else before
            shown = before if self.predict == "before" else after
            output = self.method.output(passes, shown, inputs)
            after = passes.noted_in(after)
            seen = with_batch(after.seen, networks.moving.noted, inputs.total)
        return replace(after, seen=seen, step=state.step + 1), output

    def adapt(self, state: State, inputs: Inputs, *, trace: Trace | None = None) -> State:
        """Adapt on one batch without predicting it; `trace` takes in every step of the optimiser."""
        with torch.no_grad(), self.workshop.lent() as networks:
            before, passes = self._begun(networks, state, inputs, trace)
            after = passes.noted_in(self._updated(networks, before, passes))
        return replace(after, step=state.step + 1)

    def predict_only(self, state: State, inputs: Inputs) -> Any:
        """The prediction of the state as it is."""
        with torch.no_grad(), self.passes(state, inputs) as passes:
            output = self.method.output(passes, self._with_memory(passes, state), inputs)
        return self.corrected(state, output, inputs)[1]

    def source_output(self, inputs: Inputs) -> Any:
        """The prediction of the source model."""
        with torch.no_grad(), self.workshop.lent() as networks:
            return networks.source({}, inputs)

    def unmoved_output(self, state: State, inputs: Inputs) -> Any:
        """The prediction of the source's parameters under the statistics of the adapter."""
        return self.output_of(replace(state, parameters=self.source), inputs)

    def output_of(self, state: State, inputs: Inputs) -> Any:
        """The prediction of a state's parameters and statistics alone, whatever the method makes of them."""
        with torch.no_grad(), self.passes(state, inputs) as passes:
            return passes.output(state.parameters, inputs)

    @contextmanager
    def passes(self, state: State, inputs: Inputs) -> Iterator[Passes]:
        """In the block, what a method is given for a batch; running statistics stay as they are."""
        with self.workshop.lent() as networks:
            yield self._passes(networks, state, inputs)

    def _begun(
        self, networks: Networks, state: State, inputs: Inputs, trace: Trace | None = None
    ) -> tuple[State, Passes]:
        """The batch has entered the running statistics, and the method's memory exists."""
        state, output = self._mixed_in(networks, state, inputs)
        passes = self._passes(networks, state, inputs, trace)
        passes.remembers = self.predict == "before"
        passes.remember(state.parameters, output)
        if networks.moving.suiting is None:
            return self._with_memory(passes, state), passes
        # On passes of its own: the batch enters the statistics in a pass that an update differentiates.
        state = self._with_memory(self._passes(networks, state, inputs), state)
        passes.seen = state.seen
        return state, passes

    def _passes(
        self, networks: Networks, state: State, inputs: Inputs, trace: Trace | None = None
    ) -> Passes:
        return Passes(
            batch=inputs,
            source=self.source,
            source_network=networks.source,
            network=networks.moving,
            scores=self.scores,
            optimizer=self.optimizer,
            statistics=state.statistics,
            head=self.head,
            seed=self.seed * 1_000_003 + state.step,
            trace=trace,
        )

    def _with_memory(self, passes: Passes, state: State) -> State:
        if state.step > 0:
            return state
        return replace(state, memory=self.method.start(passes, passes.batch))

    def _updated(self, networks: Networks, state: State, passes: Passes) -> State:
        """As many updates by the method as there are steps, each undone where it went wrong."""
        for number in range(self.steps):
            if number:  # anew for every update: each draws the same views of the batch
                state = passes.noted_in(state)
                passes = self._passes(networks, state, passes.batch, passes.trace)
            after = self.method.update(passes, state, passes.batch)
            checked = passes.vouches_for(after.parameters) and not after.memory
            state = after if after is state or checked else _guarded(passes, state, after)
        return state

    @torch.no_grad()
    def corrected(self, state: State, output: Any, inputs: Inputs) -> tuple[State, Any]:
        """Take note of the predicted classes, and make use of labels that come in runs."""
        if self.probabilities is None:
            return state, output
        logits = inputs.whole(self.scores(output))
        p = self.probabilities(logits)
        if p is None or p.shape != logits.shape or are_copies(logits):
            return state, output
        said = self.probabilities

        def source() -> Tensor | None:
            return said(inputs.whole(self.scores(self.source_output(inputs))))

        seen, better = corrected(with_classes(state.seen, p, source), logits, p)
        return replace(state, seen=seen), self.scores.replaced(output, inputs.part(better))

    def _mixed_in(self, networks: Networks, state: State, inputs: Inputs) -> tuple[State, Any]:
        """Let the batch enter the running statistics, where the adapter keeps such a mix."""
        if networks.mixing is None:
            return state, None
        statistics = {name: value.clone() for name, value in state.statistics.items()}
        output = networks.mixing({**state.parameters, **statistics}, inputs)
        fine = all_finite(statistics.values())
        counts = dict(state.counts)
        if not self.method.moves:  # else the update counts it
            counts["non_finite"] = counts["non_finite"] + ~fine
        statistics = chosen(fine, statistics, state.statistics)
        return replace(state, statistics=statistics, counts=counts), output


def _guarded(passes: Passes, state: State, after: State) -> State:
    """What a method made of a state, undone where it left anything that is not finite."""
    _check_memory(state.memory, after.memory)
    descended = passes.fine
    kept = (*after.parameters.values(), *after.memory.values())
    floats = [tensor for tensor in kept if tensor.is_floating_point()]
    fine = all_finite(floats) if floats else torch.ones((), dtype=torch.bool)
    if descended is not None:
        fine = fine & descended.to(fine.device)
    counts = dict(after.counts)
    counts["updates"] = torch.where(fine, counts["updates"], state.counts["updates"])
    # Where the optimiser's step has been undone already, that one is counted.
    newly = ~fine if descended is None else ~fine & descended
    counts["non_finite"] = counts["non_finite"] + newly
    return replace(
        after,
        parameters=chosen(fine, after.parameters, state.parameters),
        moments=chosen(fine, after.moments, state.moments),
        memory=chosen(fine, after.memory, state.memory),
        counts=counts,
    )


def _check_memory(old: Tensors, new: Tensors) -> None:
    """Names and shapes of a memory stay: what comes and goes cannot be undone, saved or moved."""

    def form(memory: Tensors) -> dict[str, tuple[torch.Size, torch.dtype]]:
        return {name: (tensor.shape, tensor.dtype) for name, tensor in memory.items()}

    if form(old) != form(new):
        changed = sorted(
            name for name in {**old, **new} if form(old).get(name) != form(new).get(name)
        )
        raise ValueError(
            "a method's memory keeps the names, shapes and types it had in `start`; changed: "
            f"{', '.join(changed)}. Use a ring buffer of a fixed size with a count."
        )
