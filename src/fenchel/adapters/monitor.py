"""Signs of harm that need no label: what the adapted predictions say beside the source model's."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
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
COLLAPSED_UNMOVED, SUSPECT_UNMOVED = 0.7, 0.85
"""The same for the unmoved network's."""
LOST_INFORMATION = 0.3
"""Nats of mutual information below the source's that make predictions suspect."""


SIGNALS = (
    "entropy",
    "marginal_entropy",
    "mutual_information",
    "effective_classes",
    "confidence",
    "class_counts",
)
"""The signals that follow from some predictions."""


@dataclass(frozen=True)
class Predicted:
    """Sums over some predictions, from which every signal follows; they add up over batches."""

    count: int
    probabilities: Tensor
    """Summed over the samples, (classes,), on the host in float64."""
    classes: Tensor
    """How often each class is predicted."""
    entropies: float
    confidences: float
    """Summed over the samples, as the entropies are."""

    @staticmethod
    def of(probabilities: Tensor) -> Predicted:
        """The sums over a batch of predictions, (samples, classes)."""
        p = probabilities.detach().double().cpu()
        return Predicted(
            count=len(p),
            probabilities=p.sum(0),
            classes=torch.bincount(p.argmax(-1), minlength=p.shape[-1]),
            entropies=float(torch.special.entr(p).sum()),
            confidences=float(p.amax(-1).sum()),
        )

    def __add__(self, other: Predicted) -> Predicted:
        return Predicted(
            count=self.count + other.count,
            probabilities=self.probabilities + other.probabilities,
            classes=self.classes + other.classes,
            entropies=self.entropies + other.entropies,
            confidences=self.confidences + other.confidences,
        )

    @property
    def entropy(self) -> float:
        """The mean of H(p), in nats."""
        return self.entropies / self.count

    @property
    def confidence(self) -> float:
        """The mean probability of the predicted class."""
        return self.confidences / self.count

    @property
    def class_counts(self) -> list[int]:
        """How often each class is predicted."""
        return [int(count) for count in self.classes]

    @property
    def marginal_entropy(self) -> float:
        """H(mean p), in nats."""
        return float(torch.special.entr(self.probabilities / self.count).sum())

    @property
    def mutual_information(self) -> float:
        """H(mean p) - mean H(p): how much the prediction depends on the image."""
        return self.marginal_entropy - self.entropy

    @property
    def effective_classes(self) -> float:
        """The exponential of the entropy of the predicted classes: how many are in use."""
        shares = self.classes.double() / self.count
        return float(torch.special.entr(shares).sum().exp())

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
            entropies=plain["entropies"],
            confidences=plain["confidences"],
        )


@dataclass(frozen=True)
class Compared:
    """Predictions of the same images by three models.

    Attributes:
        adapted: what the adapter returned.
        source: the source model's, its own statistics included.
        unmoved: those of the source's parameters under the adapter's statistics; None if nothing moves.
            Where the source is bad on the images, this is the better measure of what updates did.
    """

    adapted: Predicted
    source: Predicted
    unmoved: Predicted | None = None

    def __add__(self, other: Compared) -> Compared:
        both = self.unmoved is not None and other.unmoved is not None
        return Compared(
            self.adapted + other.adapted,
            self.source + other.source,
            self.unmoved + other.unmoved if both else None,  # type: ignore[operator]
        )

    def judged(self) -> tuple[Verdict, str]:
        """The verdict on the adapted predictions, and why."""
        ours, theirs = self.adapted.effective_classes, self.source.effective_classes
        lost = self.source.mutual_information - self.adapted.mutual_information
        said = f"{ours:.1f} classes in use where the source model uses {theirs:.1f}"
        if ours < COLLAPSED * theirs and lost > 0:
            return "collapsed", f"the predictions gather in few classes: {said}"
        if self.unmoved is not None:
            start = self.unmoved.effective_classes
            fell = f"{ours:.1f} classes in use where the model without updates uses {start:.1f}"
            if ours < COLLAPSED_UNMOVED * start:
                return "collapsed", f"the predictions gather in few classes: {fell}"
            if ours < SUSPECT_UNMOVED * start:
                return "suspect", f"the predictions gather in fewer classes: {fell}"
        if ours < SUSPECT * theirs:
            return "suspect", f"the predictions gather in fewer classes: {said}"
        if lost > LOST_INFORMATION:
            return "suspect", (
                f"the predictions depend less on the image than the source model's: {lost:.2f} nats of "
                "mutual information are lost"
            )
        return "healthy", said

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it; `from_plain` gives the same numbers back."""
        return {
            "adapted": self.adapted.to_plain(),
            "source": self.source.to_plain(),
            "unmoved": None if self.unmoved is None else self.unmoved.to_plain(),
        }

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Compared:
        """The inverse of `to_plain`."""
        return Compared(
            **{
                name: None if sums is None else Predicted.from_plain(sums)
                for name, sums in plain.items()
            }  # type: ignore[arg-type]
        )


@dataclass
class Monitor:
    """Watches the predictions of a stream and compares them with the source model's now and then.

    The verdict is on the last `window` images of those that were compared.
    """

    every: int = 16
    """Predictions are compared on every so many batches, more often while something looks wrong."""
    window: int = WINDOW
    first: int = 1
    """They are compared on this many batches at the beginning."""
    batches: int = 0
    verdict: Verdict = "healthy"
    reason: str = "too few images were compared to tell"
    _window: deque[Compared] = field(default_factory=deque, repr=False)

    def wants_comparison(self, adapted: Predicted) -> bool:
        """Whether a batch should be compared, given the adapted predictions of it."""
        return (
            self.batches < self.first
            or self.batches % self.every == 0
            or self.verdict != "healthy"
            or self._uses_fewer_classes(adapted)
        )

    def _uses_fewer_classes(self, adapted: Predicted) -> bool:
        if not self._window or adapted.count < FEWEST:
            return False
        before = self._window[-1].adapted.effective_classes
        return adapted.effective_classes < SUSPECT_UNMOVED * before

    def update(self, compared: Compared | None) -> Verdict:
        """Take in a batch, compared or not; the verdict on the stream as it is now."""
        self.batches += 1
        if compared is None:
            return self.verdict
        self._window.append(compared)
        while sum(part.adapted.count for part in list(self._window)[1:]) >= self.window:
            self._window.popleft()
        first, *others = self._window
        whole = sum(others, first)
        if whole.adapted.count >= FEWEST:
            self.verdict, self.reason = whole.judged()
        return self.verdict

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it; `Monitor.from_plain` watches on from there."""
        entries = {each.name: getattr(self, each.name) for each in fields(self) if each.repr}
        return entries | {"compared": [part.to_plain() for part in self._window]}

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Monitor:
        """The inverse of `to_plain`."""
        entries = dict(plain)
        window = deque(map(Compared.from_plain, entries.pop("compared")))
        return Monitor(_window=window, **entries)
