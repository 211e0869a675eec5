"""What a service keeps of a stream beside its state: its health, the course of it, and its latest answers."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fenchel.adapters import Health
from fenchel.adapters.monitor import Verdict
from fenchel.predict.evidence import Predictions

POINTS = 120
"""The course of a stream has at most so many points; as it grows longer they lie further apart."""


@dataclass
class Record:
    """Notes on one stream, which are saved with its state."""

    course: list[dict[str, Any]] = field(default_factory=list)
    stride: int = 1
    """Batches from one point of the course to the next."""
    answers: OrderedDict[str, dict[str, Any]] = field(default_factory=OrderedDict)
    """The latest answers by the keys of their requests: a request that comes again is not learnt twice."""
    summary: dict[str, Any] = field(default_factory=dict)

    def take_in(
        self,
        found: Predictions,
        health: Health,
        verdict: Verdict,
        event: str,
        agreement: float | None,
    ) -> None:
        """Let a batch enter the record; the verdict is on it, the health that of its stream afterwards."""
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
                    "verdict": verdict,
                    "event": event,
                }
            )
            if len(self.course) > POINTS:
                self.stride *= 2
                self.course = [point for point in self.course if point["batch"] % self.stride == 0]

    def sum_up(self, health: Health) -> None:
        """Bring the summary up to date."""
        self.summary = {
            "verdict": health.verdict,
            "reason": health.reason,
            "batches": health.batches,
            "samples": health.samples,
            "updates": health.updates,
            "skips": health.skips,
            "left_out": health.left_out,
            "resets": health.resets,
            "pulled_back": health.pulled_back,
            "fell_back": health.fell_back,
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
        return Record(
            course=list(plain["course"]),
            stride=plain["stride"],
            answers=OrderedDict((key, answer) for key, answer in plain["answers"]),
            summary=dict(plain["summary"]),
        )
