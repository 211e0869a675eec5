"""Several learning rates at once on one network: the one whose predictions look best answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.likelihood import Probabilities
from fenchel.adapters.method import Method
from fenchel.adapters.normalization import Statistics
from fenchel.adapters.passes import Passes
from fenchel.adapters.state import State, Tensors
from fenchel.facts import Cost
from fenchel.losses import Loss

if TYPE_CHECKING:
    from typing_extensions import Self

FACTORS = (1.0, 0.25, 4.0)
CHOSEN, SEEN = "chosen", "summed_predictions"


@final
@dataclass(frozen=True, kw_only=True)
class SideBySide(Method):
    """A method at several multiples of its learning rate, each with parameters of its own.

    A step of the method is multiplied by the factor, which for every optimiser here is the same as a multiple
    of its rate. Every batch goes through all of them before it changes them, so that each is judged on
    images that it has not adapted to. The score is the entropy of the mean prediction, H(mean p), over about
    the last `window` images: it falls when predictions gather in few classes, which is how a rate that is too
    high does harm. Scores that reward sure predictions, such as H(mean p) - mean H(p), choose the highest
    rate whether it helps or not. What was chosen for the batches so far answers for the next one; the choice
    waits for the device once per batch. Costs as many forward and backward passes as there are factors.
    """

    inner: Method
    factors: tuple[float, ...] = FACTORS
    window: int = 500
    loss: Loss | None = None

    def __post_init__(self) -> None:
        if len(self.factors) < 2 or not all(factor > 0 for factor in self.factors):
            raise ValueError(
                "learning rates are run side by side at two factors or more, all above 0; got "
                f"factors={self.factors!r}."
            )
        if not self.inner.moves:
            raise ValueError(
                f"learning_rate='auto' chooses among rates; {type(self.inner).__name__} moves nothing. Leave "
                "it out."
            )

    @property
    def shares_batches(self) -> bool:  # type: ignore[override]
        """Whether processes may share its batches: where the method inside may."""
        return self.inner.shares_batches

    @property
    def cost(self) -> Cost | None:  # type: ignore[override]
        """That of the method inside, as often as there are factors."""
        inner, times = self.inner.cost, len(self.factors)
        if inner is None:
            return None
        return replace(
            inner,
            forward=f"{times} x ({inner.forward})",
            backward=f"{times} x ({inner.backward})",
            memory=f"{times} x (parameters, {inner.memory})",
        )

    @property
    def statistics(self) -> Statistics | None:
        return self.inner.statistics

    @property
    def has_minimum(self) -> bool:
        return self.inner.has_minimum

    def check(self) -> None:
        self.inner.check()

    def prepared(self, on_source: Any, images: Tensor | None) -> Self:
        return replace(self, inner=self.inner.prepared(on_source, images))

    def trained_with(self, loss: Loss | None) -> Self:
        return replace(self, inner=self.inner.trained_with(loss), loss=loss)

    def start(self, passes: Passes, batch: Inputs) -> Tensors:
        moments = passes.optimizer.start(passes.source)
        memory = self.inner.start(passes, batch)
        first = _packed(passes.source, moments, memory)
        runs = {
            f"{k}.{name}": value for k in range(len(self.factors)) for name, value in first.items()
        }
        logits = passes.logits(passes.source, batch)
        shown = Probabilities(self.loss)(logits)
        classes = logits.shape[-1] if shown is None else shown.shape[-1]
        p = torch.zeros(len(self.factors), classes, dtype=torch.float64, device=logits.device)
        return {
            **runs,
            CHOSEN: torch.zeros((), dtype=torch.int64, device=logits.device),
            SEEN: p,
        }

    def update(self, passes: Passes, state: State, batch: Inputs) -> State:
        chosen = int(state.memory[CHOSEN])
        runs = _untouched_or_joined(self._runs(state), state, chosen)
        moved: dict[int, State] = {}
        shown: dict[int, Tensor | None] = {}
        for k in (
            chosen,
            *(k for k in range(len(self.factors)) if k != chosen),
        ):  # it answers first
            with _watching(passes) as logits:
                after = self.inner.update(passes, runs[k], batch)
            moved[k] = replace(after, parameters=_scaled(runs[k], after, self.factors[k]))
            shown[k] = logits[0] if logits else None
        seen = self._seen(state.memory[SEEN], shown)
        best = _most_spread(seen, chosen)
        packed = {
            f"{k}.{name}": value
            for k, run in moved.items()
            for name, value in _packed(run.parameters, run.moments, run.memory).items()
        }
        device = state.memory[CHOSEN].device
        memory = {**packed, SEEN: seen, CHOSEN: torch.tensor(best, device=device)}
        return replace(
            moved[chosen],
            parameters=moved[best].parameters,
            moments=moved[best].moments,
            memory=memory,
        )

    def output(self, passes: Passes, state: State, batch: Inputs) -> Any:
        return self.inner.output(passes, self._inside(state), batch)

    def predictor(self, state: State) -> Tensors:
        return self.inner.predictor(self._inside(state))

    def _inside(self, state: State) -> State:
        """The state as the method inside knows it."""
        if CHOSEN not in state.memory:
            return state
        _, _, memory = _unpacked(state.memory, int(state.memory[CHOSEN]))
        return replace(state, memory=memory)

    def _runs(self, state: State) -> list[State]:
        found = []
        for k in range(len(self.factors)):
            parameters, moments, memory = _unpacked(state.memory, k)
            found.append(replace(state, parameters=parameters, moments=moments, memory=memory))
        return found

    def _seen(self, before: Tensor, shown: Mapping[int, Tensor | None]) -> Tensor:
        """The running sum of each rate's predictions, with those of one more batch."""
        probabilities = Probabilities(self.loss)
        found = [
            None if logits is None else probabilities(logits)
            for logits in (shown[k] for k in range(len(self.factors)))
        ]
        if any(p is None or p.shape[-1] != before.shape[-1] for p in found):
            return before  # no classes to tell
        flat = [p.double().flatten(0, -2) for p in found if p is not None]
        kept = max(0.0, 1 - len(flat[0]) / self.window)
        return kept * before + torch.stack([p.sum(0) for p in flat])


def _most_spread(seen: Tensor, chosen: int) -> int:
    """The rate whose mean prediction has the highest entropy; the one chosen so far among equals."""
    mean = seen / seen.sum(-1, keepdim=True)
    entropy = torch.special.entr(mean).sum(-1).nan_to_num(nan=-1.0)
    return chosen if entropy[chosen] == entropy.max() else int(entropy.argmax())


def _untouched_or_joined(runs: list[State], state: State, chosen: int) -> list[State]:
    """The runs; all of them from the state's parameters if somebody has moved these since.

    The protection draws parameters back when they look harmful, and does not know of the other runs.
    """
    same = torch.stack(
        [(value == runs[chosen].parameters[name]).all() for name, value in state.parameters.items()]
    ).all()
    if bool(same):
        return runs
    return [replace(run, parameters=state.parameters, moments=state.moments) for run in runs]


def _scaled(before: State, after: State, factor: float) -> Tensors:
    return {
        name: value + factor * (after.parameters[name] - value)
        if factor != 1
        else after.parameters[name]
        for name, value in before.parameters.items()
    }


@contextmanager
def _watching(passes: Passes) -> Iterator[list[Tensor]]:
    """The logits of the first gradient that is taken in the block."""
    trace, passes.trace = passes.trace, []
    logits: list[Tensor] = []
    try:
        yield logits
        logits += [found.logits for _, found in passes.trace if found.logits is not None][:1]
    finally:
        if trace is not None:
            trace += passes.trace
        passes.trace = trace


_PARTS = ("parameters.", "moments.", "memory.")


def _packed(*parts: Tensors) -> Tensors:
    return {
        part + name: value
        for part, tensors in zip(_PARTS, parts, strict=True)
        for name, value in tensors.items()
    }


def _unpacked(memory: Tensors, k: int) -> tuple[Tensors, Tensors, Tensors]:
    found: list[Tensors] = []
    for part in _PARTS:
        prefix = f"{k}.{part}"
        found.append(
            {
                name.removeprefix(prefix): value
                for name, value in memory.items()
                if name.startswith(prefix)
            }
        )
    return found[0], found[1], found[2]
