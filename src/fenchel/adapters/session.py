"""One stream on an adapter's network: its state, its mode, and its counters."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fenchel.adapters import guards
from fenchel.adapters.core import Core
from fenchel.adapters.harm import OnBatch
from fenchel.adapters.health import Health, Mode
from fenchel.adapters.inputs import Inputs
from fenchel.adapters.likelihood import Probabilities
from fenchel.adapters.monitor import Monitor
from fenchel.adapters.network import ordinary
from fenchel.adapters.outputs import joined, map_tensors
from fenchel.adapters.state import RESTARTS, State, Tensors
from fenchel.adapters.watch import Watch

_WATCH = "watch."
"""Before the names of what the monitor saves."""


def _watch_of(core: Core, on_batch: OnBatch | None) -> Watch | None:
    """What watches a new stream, if anything does."""
    settings = core.settings
    if settings.protect is False:
        return None
    return Watch(
        probabilities=Probabilities(settings.loss),
        optimizer=settings.optimizer,
        acts=settings.protect == "auto",
        on_batch=on_batch,
        on_verdict=settings.on_verdict,
        monitor=Monitor(thresholds=settings.thresholds),
    )


def _left_out(batch: Inputs, given: Inputs) -> int:
    """How many samples of a whole batch were not finite, given the call before they were taken out."""
    return len(given) - len(batch) if batch.shares is None else batch.shares.left_out


def _own_rows(batch: Inputs, output: Any) -> Any:
    """The output without the row on which a process runs that has no sample of the batch."""
    if batch.shares is None or batch.shares.own:
        return output
    return map_tensors(lambda value: value[:0] if value.shape[:1] == (1,) else value, output)


def _source_rows(core: Core, inputs: Inputs, batch: Inputs) -> Any:
    """What the source model returns for a call; `batch` runs in the place of one without a sample."""
    if len(inputs):
        return core.step.source_output(inputs)
    return _own_rows(batch, core.step.source_output(replace(batch, shares=None)))


class Owner(Protocol):
    """The adapter, whose network a session uses."""

    core: Core
    unloaded: bool


class Session:
    """One stream's state on the network of an adapter. Call it as you would call the model.

    Sessions share the weights and nothing else: each has its own moving parameters, statistics, optimiser
    and memory, and is saved, restored, reset and frozen by itself. Threads may run several sessions at
    once; the batches of one session go one after the other.

    >>> import fenchel
    >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
    >>> adapted = fenchel.adapt(network, trained_with="cross-entropy")
    >>> north, south = adapted.session(), adapted.session()
    >>> _ = north(torch.randn(32, 4))
    >>> north.freeze()
    >>> north.health().mode, south.health().batches
    ('frozen', 0)
    """

    def __init__(self, owner: Owner, on_batch: OnBatch | None = None) -> None:
        """`on_batch` is told of every batch; a detector of drift is the session's own."""
        self._owner, self._on_batch = owner, on_batch
        self._mode: Mode = "adapting"
        self._warned_small_batch = False
        self._one_batch_at_a_time = threading.RLock()
        self.state: State = owner.core.initial_state()
        self.watch: Watch | None = _watch_of(owner.core, on_batch)

    # --- calling ---------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Adapt to the batch and predict it: the model's own signature and output."""
        if "torch._dynamo" not in sys.modules:  # a second's import that few programs need
            return self._adapt_and_predict(args, kwargs)
        # Whoever compiles the adapter gets the step as it is; the network inside may be compiled.
        outside = torch.compiler.disable(self._adapt_and_predict)  # type: ignore[no-untyped-call]
        return outside(args, kwargs)

    def _adapt_and_predict(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._require_loaded()
        core = self._owner.core
        with (
            self._one_batch_at_a_time,
            torch.inference_mode(False),
            torch.no_grad(),
            guards.no_autocast_cache(),
        ):
            inputs = Inputs(*pytree.tree_map_only(Tensor, ordinary, (args, kwargs)))
            alone = core.settings.group is None
            if self._mode == "disabled" or (alone and len(inputs) == 0):
                return self._seen(core.step.source_output, inputs)
            with self._watch_kept():
                state, output = self._met_finite(core, inputs)
            # The only assignment, and the last: an exception anywhere above leaves all as it was.
            self.state = state
            if self.watch is not None:
                self.watch.tell()
            return output

    @contextmanager
    def _watch_kept(self) -> Iterator[None]:
        """An exception in the block leaves the watch as it was."""
        before = self.watch.copied() if self.watch is not None else None
        try:
            yield
        except BaseException:
            self.watch = before
            raise

    def source_prediction(self, *args: Any, **kwargs: Any) -> Any:
        """What the source model returns, its own statistics included. Nothing is learnt or counted."""
        return self._seen_by(self._owner.core.step.source_output, args, kwargs)

    def unmoved_prediction(self, *args: Any, **kwargs: Any) -> Any:
        """What the source's parameters give under the statistics of the adapter: no update counts.

        Nothing is learnt or counted.
        """
        step = self._owner.core.step
        return self._seen_by(partial(step.unmoved_output, self.state), args, kwargs)

    def _seen_by(
        self, predict: Callable[[Inputs], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What a function of the batch returns for a call, under the conditions of any other call."""
        self._require_loaded()
        with torch.inference_mode(False), torch.no_grad(), guards.no_autocast_cache():
            inputs = Inputs(*pytree.tree_map_only(Tensor, ordinary, (args, kwargs)))
            return self._seen(predict, self._owner.core.in_preferred_memory(inputs))

    def _seen(self, predict: Callable[[Inputs], Any], inputs: Inputs) -> Any:
        shared = self._shared(inputs)
        return _own_rows(shared, predict(shared))

    def _shared(self, inputs: Inputs, left_out: int = 0) -> Inputs:
        """The call as a share of a batch, where other processes have the rest of it."""
        call = (self._mode, self.state.batches, self.state.resets)
        return inputs.shared(self._owner.core.settings.group, left_out=left_out, call=call)

    def _met_finite(self, core: Core, inputs: Inputs) -> tuple[State, Any]:
        """The state and the output after a batch, of which samples that are not finite do not count.

        They do not influence the others. The source model predicts them; whatever that gives is returned.
        """
        finite = inputs.finite_rows()
        if finite is None:
            batch = self._shared(inputs)
        else:
            batch = self._shared(inputs.rows(finite), left_out=int((~finite).sum()))
        left_out = _left_out(batch, inputs)
        if batch.total == 0:
            state = self._all_left_out(core, left_out) if left_out else self.state
            return state, _source_rows(core, inputs, batch)
        state, output = self._met(core, self.state, batch)
        output = _own_rows(batch, output)
        if finite is not None:
            output = joined(finite, output, core.step.source_output(inputs.rows(~finite)))
        if left_out and self._mode != "frozen":
            state = replace(
                state, samples=state.samples + left_out, left_out=state.left_out + left_out
            )
        return state, output

    def _met(self, core: Core, state: State, inputs: Inputs) -> tuple[State, Any]:
        """The state and the output after a batch of finite samples."""
        size = inputs.total
        if core.has_batch_norm and core.settings.statistics == "batch":
            self._warn_once(size)
        inputs = core.in_preferred_memory(inputs)
        try:
            if self._mode == "frozen":
                return state, core.step.predict_only(state, inputs)
            if core.settings.episodic:
                state = core.fresh(state)
            due = state.step % core.settings.update_every == 0
            state, output = self._stepped(core, state, inputs, due)
        except ValueError as error:
            if "more than 1 value per channel" in str(error):
                raise guards.explain_single_value(error, size) from error
            raise
        return replace(state, batches=state.batches + 1, samples=state.samples + size), output

    def _stepped(self, core: Core, state: State, inputs: Inputs, due: bool) -> tuple[State, Any]:
        if self.watch is None:
            return core.step(state, inputs, update=due)
        after, output = core.step.predicted(state, inputs, update=due)
        state, output = self.watch.after(core.step, state, after, inputs, output)
        return core.step.corrected(state, output, inputs)

    def _all_left_out(self, core: Core, size: int) -> State:
        """A batch without a single finite sample: counted, and nothing else."""
        state = self.state
        if self._mode == "frozen":
            return state
        counts = dict(state.counts)
        if core.settings.method.moves and state.step % core.settings.update_every == 0:
            counts["non_finite"] = counts["non_finite"] + core.settings.steps
        return replace(
            state,
            counts=counts,
            batches=state.batches + 1,
            samples=state.samples + size,
            left_out=state.left_out + size,
        )

    def _warn_once(self, size: int) -> None:
        if size < guards.SMALL_BATCH and not self._warned_small_batch:
            self._warned_small_batch = True
            guards.warn_small_batch(size)

    # --- control ---------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget all adaptation: the next batch starts from the source model, bit for bit."""
        with self._one_batch_at_a_time:
            self.state = self._owner.core.fresh(self.state)
            if self.watch is not None:
                self.watch.forget("the adapter was reset")

    def freeze(self) -> None:
        """Go on predicting with what was learnt so far, without learning more."""
        self.set_mode("frozen")

    def disable(self) -> None:
        """Predict with the source model as it is, its own statistics included."""
        self.set_mode("disabled")

    def resume(self) -> None:
        """Adapt again, from where `freeze` or `disable` stopped."""
        self.set_mode("adapting")

    @property
    def mode(self) -> Mode:
        """What a call does at present."""
        return "unloaded" if self._owner.unloaded else self._mode

    def health(self) -> Health:
        """What happened so far. Reads the counters from the device, so call it now and then."""
        state = self.state
        counts = {name: int(value) for name, value in state.counts.items()}
        return Health(
            batches=state.batches,
            samples=state.samples,
            updates=counts["updates"],
            skipped_non_finite=counts["non_finite"],
            skipped_none_kept=counts["none_kept"],
            left_out=state.left_out,
            mode=self.mode,
            **self._watched(state.resets + int(state.memory.get(RESTARTS, 0))),
        )

    def _watched(self, resets: int) -> dict[str, Any]:
        """What the watch over the stream has to say, if there is one."""
        watch = self.watch
        if watch is None:
            return {"resets": resets}
        return {
            "verdict": watch.monitor.verdict,
            "reason": watch.monitor.reason,
            "resets": resets + watch.resets,
            "pulled_back": watch.pulled_back,
            "fell_back": watch.fell_back,
            "drifts": watch.drifts,
            "signals": {} if watch.latest is None else watch.latest.signals,
        }

    # --- saving ----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """What moved, what the method remembers, the optimiser and the counters; never the weights."""
        watched = {_WATCH + name: value for name, value in self.watched().items()}
        return {**self.state.flattened(), **watched}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from a saved state, bit for bit. Checked whole before anything changes."""
        remembers = self._owner.core.settings.method.remembers
        watched = {
            name.removeprefix(_WATCH): value
            for name, value in state_dict.items()
            if name.startswith(_WATCH)
        }
        own = {name: value for name, value in state_dict.items() if not name.startswith(_WATCH)}
        with torch.inference_mode(False), self._one_batch_at_a_time:
            self.go_on(self.state.filled(own, remembers=remembers), watched)

    def watched(self) -> Tensors:
        """What the monitor knows of the stream, as tensors; empty where nothing watches."""
        return {} if self.watch is None else self.watch.to_tensors()

    def go_on(self, state: State, watched: Mapping[str, Tensor]) -> None:
        """Continue from the state of a stream and what its monitor knew, checked before all changes."""
        watch = _watch_of(self._owner.core, self._on_batch)
        if watch is not None and watched:
            watch.load(watched, state.parameters)
        self.state, self.watch = state, watch

    def move(self, function: Callable[[Tensor], Tensor]) -> None:
        """Pass every tensor through a function: the network has been moved by it, too."""
        self.state = self.state.map(function)
        if self.watch is not None:
            self.watch.move(function)

    def _require_loaded(self) -> None:
        if self._owner.unloaded:
            raise RuntimeError("this adapter was unloaded. Call fenchel.adapt again for a new one.")

    def set_mode(self, mode: Mode) -> None:
        """What calls do from now on."""
        self._require_loaded()
        self._mode = mode
