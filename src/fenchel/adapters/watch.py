"""What a session does about harm: it compares, judges, says so and, if it may, acts."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor

from fenchel.adapters.correlated import (
    CERTAIN,
    CORRELATION,
    MIXED,
    RECENT,
    acted_upon,
    in_runs,
    shown_by,
)
from fenchel.adapters.harm import Action, Detector, HarmWarning, OnBatch, OnVerdict, Report
from fenchel.adapters.inputs import Inputs
from fenchel.adapters.likelihood import Probabilities, are_copies
from fenchel.adapters.monitor import SIGNALS, Compared, Monitor, Predicted, Verdict
from fenchel.adapters.optimizers import Optimizer
from fenchel.adapters.state import State, Tensors
from fenchel.adapters.step import Step
from fenchel.adapters.suited import (
    CHANGE,
    CHANGED,
    INDEPENDENT,
    KEEN,
    MEMORY,
    RUNS,
    SAMPLES,
    SHIFT,
    TRUST,
)
from fenchel.adapters.trial import Confirmed, Trial, shifted_copy

logger = logging.getLogger("fenchel")

_COUNTS = ("pulled_back", "resets", "fell_back", "drifts")

PULL = 0.5
"""How far suspect parameters are drawn towards the source."""
NEAR = 0.15
"""Parameters farther from the source's than so much of the length of these are never given the benefit of
the doubt: they are compared on every batch, and suspect ones go back until they are nearer."""
LEAP = 0.05
"""A step away from the source over more than so much of the parameters' length is undone: it has left what
the network learnt."""
LESS_TRUST = 0.25
"""What statistics count whose trial has failed; if the next fails as well, nothing."""


@dataclass(frozen=True)
class Beside:
    """The predictions of one whole batch that were compared: probabilities, (samples, classes)."""

    adapted: Tensor
    source: Tensor
    unmoved: Tensor | None


@dataclass
class Watch:
    """The monitor of one stream, and what follows from its verdict.

    Attributes:
        acts: whether anything is done about harm, or it is only reported.
        latest: the report on the last batch, and `beside` its predictions if they were compared.
    """

    probabilities: Probabilities
    optimizer: Optimizer
    acts: bool
    on_batch: OnBatch | None = None
    on_verdict: OnVerdict | None = None
    monitor: Monitor = field(default_factory=Monitor)
    trial: Trial = field(default_factory=Trial)
    latest: Report | None = None
    beside: Beside | None = None
    pulled_back: int = 0
    resets: int = 0
    fell_back: int = 0
    drifts: int = 0
    _news: tuple[Report, HarmWarning | None] | None = None
    """What nobody was told yet."""
    _healthy: Tensors | None = None
    """The parameters of the last comparison that was healthy; None for the source's."""

    def after(
        self, step: Step, before: State, state: State, inputs: Inputs, output: Any
    ) -> tuple[State, Any]:
        """The state and the output of a batch, after whatever had to be done about them.

        `before` is the state that met the batch.
        """
        p = self._of(step, inputs, output)
        self.beside = None
        if p is None:
            self.monitor.reason = "outputs without one class per sample are not watched"
            return state, output
        apart = distance(state.parameters, step.source)
        leap = self._leap(step, before, state, apart)
        if not leap <= LEAP:
            state = self._towards(state, before.parameters, 1.0)
            apart = distance(state.parameters, step.source)
            output = step.output_of(state, inputs)
            p = self._of(step, inputs, output)
            assert p is not None
        adapted, changed = Predicted.of(p), _has_changed(state)
        verdict = self.monitor.verdict
        self.monitor.suited = SHIFT in state.seen
        if changed:
            self.monitor.forget("the stream has just changed")
            self.trial = Trial()
        action: Action = ""
        wanted = (
            changed
            or self.monitor.wants_comparison(adapted)
            or (
                self.acts
                and (apart > NEAR or _runs_may_have_ended(state, p) or bool(are_copies(p)))
            )
        )
        if self._drifted(adapted) or wanted:
            state, output, action = self._compared(step, before, state, inputs, output, p, apart)
            if self.beside is not None:
                adapted = Predicted.of(self.beside.adapted)
        else:
            self.monitor.update(None)
        if not leap <= LEAP and not action:
            action = "pulled back"
            self.pulled_back += 1
            self.monitor.doubt(
                f"one step moved the parameters by {100 * leap:.0f} % of their length and was undone. The "
                "learning rate is too high"
            )
        if action:
            apart = distance(state.parameters, step.source)
        self._note(verdict, action, before.batches, adapted, apart)
        if action == "reset":
            self.monitor.forget("the adapter went back to the last healthy parameters")
        return state, output

    def _compared(
        self,
        step: Step,
        before: State,
        state: State,
        inputs: Inputs,
        output: Any,
        p: Tensor,
        apart: float,
    ) -> tuple[State, Any, Action]:
        theirs = step.source_output(inputs)
        source_p = self._of(step, inputs, theirs)
        assert source_p is not None
        if are_copies(source_p):
            self.monitor.update(None)
            if self.acts:  # they teach nothing, whatever the method
                state = replace(state, parameters=before.parameters, moments=before.moments)
            return state, output, ""
        moves = bool(state.parameters)

        def shown(state: State, p: Tensor) -> tuple[Any, Beside, Compared]:
            """The output of the network without updates, and the comparison."""
            unmoved = step.unmoved_output(state, inputs) if moves else None
            unmoved_p = None if unmoved is None else self._of(step, inputs, unmoved)
            beside = Beside(p, source_p, unmoved_p)
            return unmoved, beside, self._comparison(beside, state, apart)

        def anew(before: State, reason: str) -> tuple[State, Any, Tensor]:
            """The batch predicted with other statistics."""
            self.monitor.forget(reason)
            self.trial = Trial()
            state, output = step.predicted(before, inputs, update=False)
            return state, output, cast(Tensor, self._of(step, inputs, output))

        if self.acts and _runs_may_have_ended(state, p) and _runs_may_have_ended(state, source_p):
            state, output, p = anew(_of_mixed_labels(before), "labels no longer come in runs")
        unmoved, beside, compared = shown(state, p)
        mixed_up = self._mixes_up_runs(state, compared)
        if self.acts and mixed_up:
            state, output, p = anew(_of_labels_in_runs(before), "labels come in runs")
            unmoved, beside, compared = shown(state, p)
        self.beside = beside
        runs = in_runs(state.seen, p, source_p)
        verdict = self.monitor.update(compared, alone=runs is False)
        if not self.acts and mixed_up:
            verdict = self.monitor.doubt(
                "labels come in runs, which statistics of the stream mix up"
            )
        if runs:
            self.trial = Trial()
        elif verdict != "collapsed" and not _has_changed(state):
            self._tried(step, before, state, inputs, beside)
        if not runs and self.acts and self.trial.wants_keen:
            state, output, p = anew(_keen(before), "statistics follow the stream closely")
            _, self.beside, _ = shown(state, p)
            return state, output, ""
        if runs is False and self.trial.failure:
            verdict = self.monitor.doubt(self.trial.failure)
            if self.acts and TRUST in state.seen:
                return self._trusting_less(state), theirs, "fell back"
        if not self.acts:
            return state, output, ""
        if verdict == "healthy":
            if moves and not self.monitor.doubts_the_latest():
                self._healthy = state.parameters
            return state, output, ""
        better = theirs if unmoved is None or _more_informative(beside) else unmoved
        if not moves:
            self.fell_back += 1
            return state, better, "fell back"
        if verdict == "suspect":
            self.pulled_back += 1
            share = max(PULL, 1 - NEAR / max(apart, NEAR))
            return self._towards(state, step.source, share), output, "pulled back"
        return self._reset(step, state), better, "reset"

    def _leap(self, step: Step, before: State, state: State, apart: float) -> float:
        """How far a step led away from the source, relative to the length of the parameters."""
        if not self.acts or apart <= distance(before.parameters, step.source):
            return 0.0
        return distance(state.parameters, before.parameters)

    def _mixes_up_runs(self, state: State, compared: Compared) -> bool:
        """Whether the statistics of the stream mix up labels that come in runs, unnoticed so far."""
        if SHIFT not in state.seen or acted_upon(state.seen) >= MIXED:
            return False
        return self.monitor.sees_mixed_up_runs(compared, young=float(state.seen[SAMPLES]) < MEMORY)

    def _comparison(self, beside: Beside, state: State, apart: float) -> Compared:
        """What the monitor judges; `apart` is how far the parameters are from the source's."""
        explained = acted_upon(state.seen)
        if len(beside.source) >= RECENT:  # one batch alone shows whether labels come in runs
            explained = min(explained, shown_by(beside.source))
        unmoved = None if beside.unmoved is None else Predicted.of(beside.unmoved)
        return Compared(
            Predicted.of(beside.adapted),
            Predicted.of(beside.source),
            unmoved,
            explained if apart <= NEAR else 0.0,
        )

    def _tried(
        self,
        step: Step,
        before: State,
        state: State,
        inputs: Inputs,
        beside: Beside,
    ) -> None:
        """Go on with the trial, unless it is over or adapter and source are the same."""
        copies = None if self.trial.over else shifted_copy(inputs)
        if copies is None or torch.equal(beside.adapted, beside.source):
            return

        def confirmed(p: Tensor | None, copies_output: Any) -> Confirmed:
            q = self._of(step, copies, copies_output)
            assert p is not None
            assert q is not None
            return Confirmed.of(p, q)

        shown = state
        if step.predict == "before":  # the copies are predicted by what predicted the batch
            shown = replace(before, statistics=state.statistics, seen=state.seen)
        keen = None
        if self.acts and KEEN in state.seen and not state.seen[KEEN]:
            other, output = step.predicted(_keen(before), inputs, update=False)
            keen = confirmed(self._of(step, inputs, output), step.predict_only(other, copies))
        self.trial = self.trial.after(
            confirmed(beside.adapted, step.predict_only(shown, copies)),
            confirmed(beside.source, step.source_output(copies)),
            keen,
        )

    def _trusting_less(self, state: State) -> State:
        """The state with less of the statistics of the stream, until it changes; a new trial begins."""
        self.fell_back += 1
        self.trial = Trial()
        return _marked(state, **{TRUST: LESS_TRUST if state.seen[TRUST] > LESS_TRUST else 0.0})

    def _reset(self, step: Step, state: State) -> State:
        """The state with the last healthy parameters; what a collapsed network saw is worth nothing."""
        self.resets += 1
        state = self._towards(state, self._healthy or step.source, 1.0)
        self._healthy = None  # a second collapse goes back to the source
        return _marked(state, **{SAMPLES: 0.0}) if TRUST in state.seen else state

    def _towards(self, state: State, target: Tensors, share: float) -> State:
        """The state with its parameters drawn towards others, and the optimiser's moments begun anew."""
        parameters = {
            name: torch.lerp(value, target[name], share) if share < 1 else target[name].clone()
            for name, value in state.parameters.items()
        }
        return replace(state, parameters=parameters, moments=self.optimizer.start(parameters))

    def _drifted(self, adapted: Predicted) -> bool:
        """Feed the user's detector, if there is one; whether it has noticed a drift."""
        if not isinstance(self.on_batch, Detector):
            return False
        self.on_batch.update(adapted.entropy)
        found = bool(self.on_batch.drift_detected)
        self.drifts += found
        return found

    def _note(
        self, before: Verdict, action: Action, batch: int, adapted: Predicted, apart: float
    ) -> None:
        monitor = self.monitor
        verdict, reason = monitor.verdict, monitor.reason
        signals = _signals(adapted, self.beside)
        signals["parameter_distance"] = apart
        self.latest = Report(batch, verdict, reason, action, signals)
        if action:
            logger.info("batch %d: %s, %s (%s)", batch, verdict, action, reason)
        changed = verdict != before
        self._news = (
            self.latest,
            HarmWarning(verdict, reason, batch, action) if changed else None,
        )

    def tell(self) -> None:
        """Tell the news of a batch, once it is done with: whoever is told may raise an exception."""
        if self._news is None:
            return
        (report, said), self._news = self._news, None
        if callable(self.on_batch) and not isinstance(self.on_batch, Detector):
            self.on_batch(report)
        if said is None:
            return
        if self.on_verdict is not None:
            self.on_verdict(said)
        if said.verdict != "healthy":
            warnings.warn(said, stacklevel=2)

    def _of(self, step: Step, inputs: Inputs, output: Any) -> Tensor | None:
        """The finite probabilities in an output, of the whole batch."""
        p = self.probabilities(inputs.whole(step.scores(output)))
        if p is None:
            return None
        finite = p.isfinite().all(-1)
        return p if bool(finite.all()) else torch.nan_to_num(p, nan=1 / p.shape[-1])

    def forget(self, reason: str) -> None:
        """Watch on as over a new stream; only the counts stay."""
        self.monitor.forget(reason)
        self.monitor.batches, self.trial, self._healthy = 0, Trial(), None

    # --- saving ----------------------------------------------------------------------------------

    def copied(self) -> Watch:
        """The same watch, which goes on by itself."""
        return replace(self, monitor=self.monitor.copied())

    def move(self, function: Callable[[Tensor], Tensor]) -> None:
        """Pass every tensor through a function, which moves it to where the parameters are."""
        if self._healthy is not None:
            self._healthy = {name: function(value) for name, value in self._healthy.items()}

    def to_tensors(self) -> Tensors:
        """Everything that later decisions depend on, as tensors."""
        counts = {name: torch.tensor(getattr(self, name)) for name in _COUNTS}
        healthy = {f"healthy.{name}": value for name, value in (self._healthy or {}).items()}
        return {**counts, **self.monitor.to_tensors(), **self.trial.to_tensors(), **healthy}

    def load(self, saved: Mapping[str, Tensor], parameters: Tensors) -> None:
        """Watch on from what `to_tensors` gave, over a stream with such parameters."""
        absent = [name for name in (*_COUNTS, "batches", "verdict") if name not in saved]
        if absent:
            raise ValueError(
                f"this saved state has no {absent[0]!r} of the monitor. Pass what adapter.state_dict() "
                "returned."
            )
        for name in _COUNTS:
            setattr(self, name, int(saved[name]))
        self.monitor = Monitor.from_tensors(saved, self.monitor.thresholds)
        self.trial = Trial.from_tensors(saved)
        healthy = {
            name: saved[f"healthy.{name}"].to(like, copy=True)
            for name, like in parameters.items()
            if f"healthy.{name}" in saved
        }
        self._healthy = healthy or None


def _marked(state: State, **numbers: float) -> State:
    """The state with other numbers among what is known of its statistics."""
    like = next(iter((*state.seen.values(), *state.statistics.values())))
    marks = {name: like.new_full((), value) for name, value in numbers.items()}
    return replace(state, seen={**state.seen, **marks})


def _keen(state: State) -> State:
    """The state with statistics that tolerate nothing; they begin anew."""
    return _marked(state, **{KEEN: 1.0, SAMPLES: 0.0})


def _runs_may_have_ended(state: State, p: Tensor) -> bool:
    """Whether labels came in runs, and the predictions of a batch look as if they no longer did."""
    suits = SHIFT in state.seen and len(p) >= RECENT
    return suits and acted_upon(state.seen) >= MIXED > shown_by(p)


def _of_mixed_labels(state: State) -> State:
    """The state for labels that come in runs no longer; its statistics were those of a few classes."""
    return _marked(state, **{SAMPLES: 0.0, RUNS: 0.0, CORRELATION: 0.0, INDEPENDENT: 1.0})


def _of_labels_in_runs(state: State) -> State:
    """The state for labels that come in runs; what was seen of them stands for fewer samples."""
    few = CERTAIN / RECENT
    samples = few * float(state.seen.get(SAMPLES, 0.0))
    return _marked(state, **{SAMPLES: samples, RUNS: 1.0, CORRELATION: 1.0, INDEPENDENT: few})


def _has_changed(state: State) -> bool:
    changed = state.seen.get(CHANGED)
    return changed is not None and float(changed) > CHANGE


def _more_informative(beside: Beside) -> bool:
    """Whether the source's predictions depend more on the image than those without updates."""
    if beside.unmoved is None:
        return True
    theirs, unmoved = Predicted.of(beside.source), Predicted.of(beside.unmoved)
    return theirs.mutual_information > unmoved.mutual_information


def distance(moved: Tensors, source: Tensors) -> float:
    """How far the moving parameters are from the source's, relative to their size."""
    if not source or not moved:
        return 0.0
    first = next(iter(source.values()))
    sums = [[(moved[name] - v).square().sum(), v.square().sum()] for name, v in source.items()]
    rows = [torch.stack(each).to(first.device, torch.float32) for each in sums]
    apart, size = torch.stack(rows).sum(0).tolist()  # one wait for a device, not one per layer
    return float((apart / size) ** 0.5) if size else 0.0


def _signals(adapted: Predicted, beside: Beside | None) -> dict[str, float]:
    """The signals of a batch by name; class counts are no single number and stay out."""
    names = [name for name in SIGNALS if name != "class_counts"]
    signals = {name: float(getattr(adapted, name)) for name in names}
    signals["estimated_error"] = 100 * (1 - adapted.confidence)
    if beside is None:
        return signals
    for prefix, p in (("source_", beside.source), ("unmoved_", beside.unmoved)):
        if p is not None:
            sums = Predicted.of(p)
            signals |= {prefix + name: float(getattr(sums, name)) for name in names}
    agree = beside.adapted.argmax(-1) == beside.source.argmax(-1)
    return {**signals, "agreement": float(agree.double().mean())}
