"""Signs of harm that need no label: what the adapted predictions say beside the source model's."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

Verdict = Literal["healthy", "suspect", "collapsed"]

WINDOW = 500
"""Images over which predictions are judged."""
FEWEST = 24
"""With fewer compared images there is no verdict yet."""
COLLAPSED, SUSPECT = 0.6, 0.8
"""The share of the source's effective number of classes below which predictions are judged so."""
LOST_INFORMATION = 0.3
"""Nats of mutual information below the source's that make predictions suspect."""


@dataclass(frozen=True)
class Predicted:
    """Sums over some predictions, from which every signal follows; they add up over batches."""

    count: int
    probabilities: Tensor
    """Summed over the samples, (classes,), on the host in float64."""
    classes: Tensor
    """How often each class is predicted."""
    entropy: float
    confidence: float

    @staticmethod
    def of(probabilities: Tensor) -> Predicted:
        """The sums over a batch of predictions, (samples, classes)."""
        p = probabilities.detach().double().cpu()
        return Predicted(
            count=len(p),
            probabilities=p.sum(0),
            classes=torch.bincount(p.argmax(-1), minlength=p.shape[-1]),
            entropy=float(torch.special.entr(p).sum()),
            confidence=float(p.amax(-1).sum()),
        )

    def __add__(self, other: Predicted) -> Predicted:
        return Predicted(
            count=self.count + other.count,
            probabilities=self.probabilities + other.probabilities,
            classes=self.classes + other.classes,
            entropy=self.entropy + other.entropy,
            confidence=self.confidence + other.confidence,
        )

    @property
    def mean_entropy(self) -> float:
        """The mean of H(p), in nats."""
        return self.entropy / self.count

    @property
    def mean_confidence(self) -> float:
        """The mean probability of the predicted class."""
        return self.confidence / self.count

    @property
    def marginal_entropy(self) -> float:
        """H(mean p), in nats."""
        return float(torch.special.entr(self.probabilities / self.count).sum())

    @property
    def mutual_information(self) -> float:
        """H(mean p) - mean H(p): how much the prediction depends on the image."""
        return self.marginal_entropy - self.mean_entropy

    @property
    def effective_classes(self) -> float:
        """The exponential of the entropy of the predicted classes: how many are in use."""
        shares = self.classes.double() / self.count
        return float(torch.special.entr(shares).sum().exp())

    def signals(self) -> dict[str, Any]:
        """The signals by name."""
        return {
            "entropy": self.mean_entropy,
            "marginal_entropy": self.marginal_entropy,
            "mutual_information": self.mutual_information,
            "effective_classes": self.effective_classes,
            "confidence": self.mean_confidence,
            "class_counts": self.classes.tolist(),
        }

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it; `from_plain` gives the same numbers back."""
        return {
            **asdict(self),
            "probabilities": self.probabilities.tolist(),
            "classes": self.classes.tolist(),
        }

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Predicted:
        """The inverse of `to_plain`."""
        return Predicted(
            count=plain["count"],
            probabilities=torch.tensor(plain["probabilities"], dtype=torch.float64),
            classes=torch.tensor(plain["classes"]),
            entropy=plain["entropy"],
            confidence=plain["confidence"],
        )


@dataclass
class Monitor:
    """Watches the predictions of a stream and compares them with the source model's now and then.

    Both are compared over the same images: the last `window` of those that the source predicted too.
    """

    every: int = 8
    """The source is asked on every so many batches, more often while something looks wrong."""
    window: int = WINDOW
    first: int = 2
    """The source is asked on this many batches at the beginning."""
    batches: int = 0
    verdict: Verdict = "healthy"
    reason: str = "too few images to tell"
    _adapted: deque[Predicted] = field(default_factory=deque, repr=False)
    _source: deque[Predicted] = field(default_factory=deque, repr=False)
    _reference: float | None = None

    def wants_source(self, adapted: Predicted) -> bool:
        """Whether the source's prediction of a batch is needed, given the adapted one."""
        return (
            self.batches < self.first
            or self.batches % self.every == 0
            or self.verdict != "healthy"
            or self._uses_fewer_classes(adapted)
        )

    def _uses_fewer_classes(self, adapted: Predicted) -> bool:
        return (
            self._reference is not None
            and adapted.count >= FEWEST
            and adapted.effective_classes < SUSPECT * self._reference
        )

    def update(self, adapted: Predicted, source: Predicted | None) -> Verdict:
        """Take in a batch; the verdict on the stream as it is now."""
        self.batches += 1
        if source is None:
            return self.verdict
        self._adapted.append(adapted)
        self._source.append(source)
        while sum(part.count for part in list(self._adapted)[1:]) >= self.window:
            self._adapted.popleft()
            self._source.popleft()
        ours, theirs = self.compared()
        self._reference = ours.effective_classes
        if ours.count >= FEWEST:
            self.verdict, self.reason = judged(ours, theirs)
        return self.verdict

    def compared(self) -> tuple[Predicted, Predicted]:
        """The adapted and the source's predictions of the window."""
        return _total(self._adapted), _total(self._source)

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it; `Monitor.from_plain` watches on from there."""
        return {
            "every": self.every,
            "window": self.window,
            "first": self.first,
            "batches": self.batches,
            "verdict": self.verdict,
            "reason": self.reason,
            "adapted": [part.to_plain() for part in self._adapted],
            "source": [part.to_plain() for part in self._source],
            "reference": self._reference,
        }

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Monitor:
        """The inverse of `to_plain`."""
        entries = dict(plain)
        return Monitor(
            _adapted=deque(map(Predicted.from_plain, entries.pop("adapted"))),
            _source=deque(map(Predicted.from_plain, entries.pop("source"))),
            _reference=entries.pop("reference"),
            **entries,
        )


def judged(adapted: Predicted, source: Predicted) -> tuple[Verdict, str]:
    """The verdict on adapted predictions beside the source's of the same images, and why."""
    ours, theirs = adapted.effective_classes, source.effective_classes
    lost = source.mutual_information - adapted.mutual_information
    classes = f"{ours:.1f} classes in use where the source model uses {theirs:.1f}"
    if ours < COLLAPSED * theirs and lost > 0:
        return "collapsed", f"the predictions gather in few classes: {classes}"
    if ours < SUSPECT * theirs:
        return "suspect", f"the predictions gather in fewer classes: {classes}"
    if lost > LOST_INFORMATION:
        return "suspect", (
            f"the predictions depend less on the image than the source model's: {lost:.2f} nats of mutual "
            "information are lost"
        )
    return "healthy", classes


def _total(parts: deque[Predicted]) -> Predicted:
    first, *others = parts
    return sum(others, first)
