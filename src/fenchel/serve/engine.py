"""Answers the requests of many streams on one network: the work of one replica, without any HTTP."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from fenchel.adapters import Adapter
from fenchel.predict.comparing import SourcePredictions, predicted, verdict_on
from fenchel.predict.evidence import Predictions, event_of, numbers_of
from fenchel.serve.limits import Limits, Refused
from fenchel.serve.reading import Images
from fenchel.serve.record import Record
from fenchel.streams import MicroBatches, Request, Stream, Streams, TooBusy, check_name

SHOWN = 1000
"""Streams that an overview can tell of: those that were used last."""
NO_SCORES = "it, or the network's scores for it, is not finite"


@dataclass(frozen=True)
class _About:
    """What belongs to the samples of a request."""

    key: str
    names: tuple[str, ...]


class Engine:
    """Streams behind a queue. `submit` takes a request; its answer is on the disk before it is given.

    Args:
        streams: where they are kept.
        classes: the names of the classes, where they have some.
        limits: what requests may ask for.
        source_predictions: when the source model predicts too; see `fenchel.predict.Choices`.
        batch_size: images of one stream that are learnt together at most, and `wait` seconds that the first
            of them waits for others.
        threads: streams that run side by side.
        save_every: batches of a stream from one save to the next. With more than one, those since the last
            save are lost when the process dies.
    """

    def __init__(
        self,
        streams: Streams,
        *,
        classes: Sequence[str] | None = None,
        limits: Limits | None = None,
        source_predictions: SourcePredictions = "auto",
        batch_size: int = 64,
        wait: float = 0.0,
        threads: int = 1,
        save_every: int = 1,
        device: str = "cpu",
    ) -> None:
        self.streams, self.classes, self.device = streams, classes, device
        self.limits = limits or Limits()
        self._compares, self._save_every = source_predictions, save_every
        self._batches = MicroBatches(
            self._answer,
            most=batch_size,
            wait=wait,
            threads=threads,
            waiting=self.limits.waiting,
            all_waiting=self.limits.all_waiting,
        )
        self._lock = threading.Lock()
        self._latest: OrderedDict[str, Record] = OrderedDict()
        for name, notes in reversed(list(streams.store.notes(SHOWN))):
            if notes:
                self._show(name, Record.from_plain(notes))

    @property
    def adapter(self) -> Adapter:
        """What all streams share."""
        return self.streams.adapter

    # --- requests --------------------------------------------------------------------------------

    def submit(self, name: str, key: str, images: Images) -> Future[dict[str, Any]]:
        """Let a request wait for its turn. The same `key` again is answered as before, and learns nothing."""
        self._check(name)
        if name not in self.streams:
            self._require_room(len(self.streams) + 1)
        samples = torch.tensor(images.values)  # a copy: others may own these bytes
        try:
            return self._batches.submit(name, samples, _About(key, images.names))
        except TooBusy as error:
            raise Refused(503, str(error)) from None

    def describe(self, name: str) -> dict[str, Any]:
        """The health of a stream, its counters and its course."""
        with self._known(name) as stream:
            record = Record.from_plain(stream.notes)
            record.sum_up(stream.session.health())
            return {"stream": name, **record.summary, "course": record.course}

    def reset(self, name: str, key: str) -> dict[str, Any]:
        """Let a stream begin again from the source model; its counters go on.

        The same `key` again is answered as before, and resets nothing.
        """
        kept_as = f"reset {key}"  # no key of a request has a space
        with self._known(name) as stream:
            record = Record.from_plain(stream.notes)
            if kept_as not in record.answers:
                with _whole_or_not_at_all(stream):
                    stream.session.reset()
                    record.sum_up(stream.session.health())
                    answer = {"stream": name, "key": key, **record.summary}
                    record.remember(kept_as, answer, self._answers_kept(1))
                    self._keep(stream, record, save=True)
            return record.answers[kept_as]

    def overview(self, shown: int = SHOWN, *, course: bool = False) -> dict[str, Any]:
        """The streams that were used last, and how busy the engine is."""
        with self._lock:
            latest = list(reversed(self._latest.items()))[:shown]
        rows = [
            {"stream": name, **record.summary, **({"course": record.course} if course else {})}
            for name, record in latest
        ]
        return {
            "streams": rows,
            "known": len(self.streams),
            "in_memory": self.streams.in_memory,
            "waiting": self._batches.count,
            "process": os.getpid(),
        }

    def close(self) -> None:
        """Answer what waits, and save everything."""
        self._batches.close()
        self.streams.close()

    # --- one batch -------------------------------------------------------------------------------

    def _answer(self, name: str, requests: Sequence[Request]) -> list[dict[str, Any]]:
        """Learn from the requests that are new as one batch, save, and answer all of them."""
        with self._held(name) as stream:
            record = Record.from_plain(stream.notes)
            new = {r.about.key: r for r in requests if r.about.key not in record.answers}
            if new:
                if not stream.is_stored:  # names that are new may have come together
                    self._require_room(len(self.streams))
                with _whole_or_not_at_all(stream):
                    self._learn(stream, record, list(new.values()))
            return [record.answers[request.about.key] for request in requests]

    def _learn(self, stream: Stream, record: Record, requests: Sequence[Request]) -> None:
        session = stream.session
        before = session.health()
        inputs = _as_network_takes(torch.cat([request.samples for request in requests]))
        found = self._predicted(stream, inputs.to(self.device))
        after = session.health()
        event = event_of(before, after)
        rows = self._rows(found, len(inputs))
        verdict, _ = verdict_on(session)
        record.take_in(found, after, verdict, event, _agreement(rows))
        kept, begin = self._answers_kept(len(requests)), 0
        for request in requests:
            mine = rows[begin : begin + len(request.samples)]
            begin += len(request.samples)
            named = zip(request.about.names, mine, strict=True)
            answer = {
                "stream": stream.name,
                "key": request.about.key,
                "batch": after.batches,
                "event": event,
                "predictions": [{"image": name, **row} for name, row in named],
                "health": record.summary,
            }
            record.remember(request.about.key, answer, kept)
        self._keep(stream, record, save=after.batches % self._save_every == 0)

    def _predicted(self, stream: Stream, inputs: torch.Tensor) -> Predictions:
        try:
            return predicted(stream.session, self.adapter.settings, inputs, self._compares)
        except Exception as error:  # networks assert what they like of the images that they get
            told = (str(error) or type(error).__name__).splitlines()[0]
            raise Refused(
                422, f"the network cannot take images of shape {tuple(inputs.shape[1:])} ({told})."
            ) from error

    def _rows(self, found: Predictions, count: int) -> list[dict[str, Any]]:
        """What is said of each image; the source's word is null where it was not asked."""
        ours = numbers_of(found.adapted, self.classes)
        theirs = numbers_of(found.source, self.classes)
        nothing = {"prediction": None, "name": None, "confidence": None, "entropy": None}
        rows = []
        for place in range(count):
            row = ours.get(place, {**nothing, "reason": NO_SCORES})
            said = theirs.get(place, nothing)
            source = {f"source_{k}": said[k] for k in ("prediction", "name", "confidence")}
            rows.append({**row, **source})
        return rows

    def _keep(self, stream: Stream, record: Record, *, save: bool) -> None:
        former, stream.notes = stream.notes, record.to_plain()
        try:
            if save:
                stream.save()
        except BaseException:
            stream.notes = former
            raise
        self._show(stream.name, record)

    def _show(self, name: str, record: Record) -> None:
        with self._lock:
            self._latest[name] = record
            self._latest.move_to_end(name)
            if len(self._latest) > SHOWN:
                self._latest.popitem(last=False)

    def _answers_kept(self, new: int) -> int:
        """A key may come again for as long as its request could be under way."""
        return 2 * self.limits.waiting + new

    def _require_room(self, count: int) -> None:
        if count > self.limits.streams:
            raise Refused(
                429,
                f"a replica has at most {self.limits.streams} streams, and this one has. Use one of them.",
            )

    def _check(self, name: str) -> None:
        try:
            check_name(name)
        except ValueError as error:
            raise Refused(422, str(error)) from None

    @contextmanager
    def _known(self, name: str) -> Iterator[Stream]:
        """The stream of that name, which must be there."""
        self._check(name)
        if name not in self.streams:
            raise Refused(404, f"a stream begins with its first images; there is no {name!r} yet.")
        with self._held(name) as stream:
            yield stream

    @contextmanager
    def _held(self, name: str) -> Iterator[Stream]:
        """The stream of that name; what is wrong with its file is told to whoever asks for it."""
        try:
            with self.streams.held(name) as stream:
                yield stream
        except ValueError as error:
            raise Refused(409, str(error)) from error
        except OSError as error:
            raise Refused(507, f"the state of {name!r} cannot be kept ({error}).") from error


@contextmanager
def _whole_or_not_at_all(stream: Stream) -> Iterator[None]:
    """What is not acknowledged did not happen: an exception in the block leaves the state as it was."""
    session = stream.session
    state, saved = session.state, session.state_dict()
    try:
        yield
    except BaseException:
        if session.state is not state:
            session.load_state_dict(saved)
        raise


def _as_network_takes(samples: torch.Tensor) -> torch.Tensor:
    """Images (n, C, H, W) in [0, 1] from bytes (n, H, W, C); floats as they are."""
    return samples.permute(0, 3, 1, 2).float() / 255 if samples.dtype == torch.uint8 else samples


def _agreement(rows: Sequence[dict[str, Any]]) -> float | None:
    """The share of images of which the source says the same, of those that it was asked about."""
    both = [
        row["prediction"] == row["source_prediction"]
        for row in rows
        if row["source_prediction"] is not None and row["prediction"] is not None
    ]
    return sum(both) / len(both) if both else None
