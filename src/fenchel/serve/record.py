"""What a service keeps of a stream beside its state: signs of harm, their course, and its latest answers."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from fenchel.adapters import Health
from fenchel.adapters.monitor import FEWEST, Compared, Monitor, Predicted
from fenchel.predict.evidence import Predictions

POINTS = 120
"""The course of a stream has at most so many points; as it grows longer they lie further apart."""


@dataclass
class Record:
    """Notes on one stream, which are saved with its state."""

    monitor: Monitor = field(default_factory=Monitor)
    compared: Compared | None = None
    """Predictions that were compared, but are too few for the monitor so far."""
    course: list[dict[str, Any]] = field(default_factory=list)
    stride: int = 1
    """Batches from one point of the course to the next."""
    answers: OrderedDict[str, dict[str, Any]] = field(default_factory=OrderedDict)
    """The latest answers by the keys of their requests: a request that comes again is not learnt twice."""
    summary: dict[str, Any] = field(default_factory=dict)

    def take_in(
        self, found: Predictions, health: Health, event: str, agreement: float | None
    ) -> None:
        """Let a batch enter the record."""
        compared = found.compared()
        if compared is not None:
            self.compared = compared if self.compared is None else self.compared + compared
        enough = self.compared is not None and self.compared.adapted.count >= FEWEST
        self.monitor.update(self.compared if enough else None)
        self.compared = None if enough else self.compared
        self.sum_up(health)
        sums = None if found.adapted is None else found.adapted.sums
        if sums is not None and health.batches % self.stride == 0:
            self.course.append(
                {
                    "time": round(time.time(), 3),
                    "batch": health.batches,
                    "confidence": round(sums.confidence, 5),
                    "entropy": round(sums.entropy, 5),
                    "classes": round(sums.effective_classes, 3),
                    "agreement": None if agreement is None else round(agreement, 5),
                    "verdict": self.monitor.verdict,
                    "event": event,
                }
            )
            if len(self.course) > POINTS:
                self.stride *= 2
                self.course = [point for point in self.course if point["batch"] % self.stride == 0]

    def sum_up(self, health: Health) -> None:
        """Bring the summary up to date."""
        self.summary = {
            "verdict": self.monitor.verdict,
            "reason": self.monitor.reason,
            "batches": health.batches,
            "samples": health.samples,
            "updates": health.updates,
            "skips": health.skips,
            "left_out": health.left_out,
            "resets": health.resets,
            "mode": health.mode,
            "time": round(time.time(), 3),
        }

    def remember(self, key: str, answer: dict[str, Any], most: int) -> None:
        """Keep an answer, and no more than `most`."""
        self.answers[key] = answer
        while len(self.answers) > most:
            self.answers.popitem(last=False)

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "monitor": _entries(self.monitor)
            | {"compared": [_sums(part) for part in self.monitor._window]},
            "compared": None if self.compared is None else _sums(self.compared),
            "course": self.course,
            "stride": self.stride,
            "answers": list(self.answers.items()),
            "summary": self.summary,
        }

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Record:
        """The inverse of `to_plain`; of nothing, a new record."""
        if not plain:
            return Record()
        compared, monitor = plain["compared"], dict(plain["monitor"])
        window = deque(_compared(sums) for sums in monitor.pop("compared"))
        return Record(
            monitor=Monitor(**monitor, _window=window),
            compared=None if compared is None else _compared(compared),
            course=list(plain["course"]),
            stride=plain["stride"],
            answers=OrderedDict((key, answer) for key, answer in plain["answers"]),
            summary=dict(plain["summary"]),
        )


def _entries(thing: Any) -> dict[str, Any]:
    """The public fields of a dataclass, as JSON has them."""
    found = {each.name: getattr(thing, each.name) for each in fields(thing) if each.name[0] != "_"}
    return {
        name: value.tolist() if isinstance(value, Tensor) else value
        for name, value in found.items()
    }


def _sums(compared: Compared) -> dict[str, Any]:
    return {
        each.name: None if (sums := getattr(compared, each.name)) is None else _entries(sums)
        for each in fields(compared)
    }


def _compared(plain: Mapping[str, Any]) -> Compared:
    """The inverse of `_sums`: JSON keeps whole numbers and others apart."""

    def tensor(values: list[Any]) -> Tensor:
        whole = all(isinstance(value, int) for value in values)
        return torch.tensor(values, dtype=torch.int64 if whole else torch.float64)

    def predicted(sums: Mapping[str, Any]) -> Predicted:
        entries: dict[str, Any] = {
            name: tensor(value) if isinstance(value, list) else value
            for name, value in sums.items()
        }
        return Predicted(**entries)

    found: dict[str, Any] = {
        name: None if sums is None else predicted(sums) for name, sums in plain.items()
    }
    return Compared(**found)
