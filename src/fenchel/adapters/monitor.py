"""Signs of harm that need no label: what the adapted predictions say beside the source model's."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

Verdict = Literal["healthy", "suspect", "collapsed"]
VERDICTS: tuple[Verdict, ...] = ("healthy", "suspect", "collapsed")

WINDOW = 500
"""Images over which predictions are judged."""
FEWEST = 24
"""With fewer compared images there is no verdict yet."""
SOME = 64
"""So many show differences of a third of a nat."""
ENOUGH = 400
"""So many show differences of a tenth of a nat, and more than how statistics lag behind a change."""
FEWER, SURER = 0.5, 0.6
"""Shares of the classes in use and of the entropy that the source has left where statistics mix up runs."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """When predictions are judged `suspect` or `collapsed`; `fenchel calibrate` finds those of one model.

    Attributes:
        collapsed, suspect: shares of the source's effective number of classes.
        collapsed_unmoved, suspect_unmoved: the same of the unmoved network's.
        mixed_up: nats by which the entropy over all batches exceeds that within them, the source's minus
            ours.
        lost_information: nats of mutual information below the source's.
        lost_by_statistics: the same of the unmoved network: what its statistics lose.
    """

    collapsed: float = 0.6
    suspect: float = 0.8
    collapsed_unmoved: float = 0.7
    suspect_unmoved: float = 0.85
    mixed_up: float = 0.4
    lost_information: float = 0.3
    lost_by_statistics: float = 0.085


THRESHOLDS = Thresholds()
"""Those of any model for which none were found."""


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
    batch_entropies: float
    """The entropy of each batch's mean prediction, times the batch's samples, summed."""

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
            batch_entropies=float(torch.special.entr(p.mean(0)).sum()) * len(p),
        )

    def __add__(self, other: Predicted) -> Predicted:
        return Predicted(
            count=self.count + other.count,
            probabilities=self.probabilities + other.probabilities,
            classes=self.classes + other.classes,
            entropies=self.entropies + other.entropies,
            confidences=self.confidences + other.confidences,
            batch_entropies=self.batch_entropies + other.batch_entropies,
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
    def sorting(self) -> float:
        """H(mean p) over all batches minus that within them: large where batches differ in their classes."""
        return self.marginal_entropy - self.batch_entropies / self.count

    @property
    def effective_classes(self) -> float:
        """The exponential of the entropy of the predicted classes: how many are in use."""
        shares = self.classes.double() / self.count
        return float(torch.special.entr(shares).sum().exp())

    def classes_to_expect(self, correlation: float) -> float:
        """The effective number of classes, less those that correlated labels do not explain.

        Where a batch holds one class, other classes within it are mistakes: a better model uses fewer.
        """
        within = self.batch_entropies / self.count
        return max(1.0, self.effective_classes * math.exp(-correlation * within))

    def information_to_expect(self, correlation: float) -> float:
        """The mutual information, less that within batches as far as correlated labels do not explain it."""
        within = self.batch_entropies / self.count - self.entropy
        return self.mutual_information - correlation * within

    def to_tensor(self) -> Tensor:
        """All numbers in one row; `from_tensor` gives the same sums back."""
        sums = [self.count, self.entropies, self.confidences, self.batch_entropies]
        head = torch.tensor(sums, dtype=torch.float64)
        return torch.cat([head, self.probabilities, self.classes.double()])

    @staticmethod
    def from_tensor(row: Tensor) -> Predicted:
        """The inverse of `to_tensor`."""
        row = row.double().cpu()
        count, entropies, confidences, batch_entropies = row[:4].tolist()
        probabilities, classes = row[4:].chunk(2)
        return Predicted(
            count=int(count),
            probabilities=probabilities,
            classes=classes.long(),
            entropies=entropies,
            confidences=confidences,
            batch_entropies=batch_entropies,
        )


@dataclass(frozen=True)
class Compared:
    """Predictions of the same images by three models.

    Attributes:
        adapted: what the adapter returned.
        source: the source model's, its own statistics included.
        unmoved: those of the source's parameters under the adapter's statistics; None if nothing moves.
            Where the source is bad on the images, this is the better measure of what updates did.
        correlation: that of the labels, 0 to 1, as far as the output makes use of it.
    """

    adapted: Predicted
    source: Predicted
    unmoved: Predicted | None = None
    correlation: float = 0.0

    def __add__(self, other: Compared) -> Compared:
        both = self.unmoved is not None and other.unmoved is not None
        adapted = self.adapted + other.adapted
        share = other.adapted.count / adapted.count
        return Compared(
            adapted,
            self.source + other.source,
            self.unmoved + other.unmoved if both else None,  # type: ignore[operator]
            self.correlation + share * (other.correlation - self.correlation),
        )

    def judged(self, limits: Thresholds = THRESHOLDS) -> tuple[Verdict, str]:
        """The verdict on the adapted predictions, and why."""
        correlation = self.correlation
        ours, theirs = self.adapted.effective_classes, self.source.classes_to_expect(correlation)
        known = self.source.information_to_expect(correlation)
        lost = known - self.adapted.mutual_information
        said = f"{ours:.1f} classes in use where the source model uses {theirs:.1f}"
        if ours < limits.collapsed * theirs and lost > 0:
            return "collapsed", f"the predictions gather in few classes: {said}"
        if self.unmoved is not None:
            start = self.unmoved.classes_to_expect(correlation)
            fell = f"{ours:.1f} classes in use where the model without updates uses {start:.1f}"
            if ours < limits.collapsed_unmoved * start:
                return "collapsed", f"the predictions gather in few classes: {fell}"
            if ours < limits.suspect_unmoved * start:
                return "suspect", f"the predictions gather in fewer classes: {fell}"
        if ours < limits.suspect * theirs:
            return "suspect", f"the predictions gather in fewer classes: {said}"
        if self.mixed_up > limits.mixed_up:
            return "suspect", (
                "the source model sees batches of few classes each, where the adapted model sees all "
                f"classes in each: {self.mixed_up:.2f} nats of order are lost. Batches sorted by class "
                "mislead their own statistics"
            )
        if self.adapted.count >= SOME and lost > limits.lost_information:
            return "suspect", (
                f"the predictions depend less on the image than the source model's: {lost:.2f} nats of "
                "mutual information are lost"
            )
        resting = self.adapted if self.unmoved is None else self.unmoved
        by_statistics = self.source.mutual_information - resting.mutual_information
        if self.adapted.count >= ENOUGH and by_statistics > limits.lost_by_statistics:
            return "suspect", (
                "the source model tells the images apart better than the same model under the adapter's "
                f"statistics: {by_statistics:.2f} nats are lost. The images may be like those it was trained "
                "on, or sorted by class"
            )
        return "healthy", said

    @property
    def mixed_up(self) -> float:
        """Nats of the order that the source sees in the batches, and the adapter does not."""
        return self.source.sorting - self.adapted.sorting

    @property
    def mixes_up_runs(self) -> bool:
        """Whether the source is sure of few classes in images of which the adapter makes many, unsure of all.

        A source that fails on a new kind of image prefers few classes too, but is less sure of them.
        """
        resting = self.adapted if self.unmoved is None else self.unmoved
        fewer = self.source.effective_classes < FEWER * resting.effective_classes
        return fewer and self.source.entropy < SURER * resting.entropy

    def to_tensor(self) -> Tensor:
        """One row per model; not a number where the unmoved one did not predict."""
        ours = self.adapted.to_tensor()
        unmoved = (
            torch.full_like(ours, torch.nan) if self.unmoved is None else self.unmoved.to_tensor()
        )
        return torch.stack([ours, self.source.to_tensor(), unmoved])

    @staticmethod
    def from_tensor(rows: Tensor) -> Compared:
        """The inverse of `to_tensor`."""
        adapted, source, unmoved = rows
        return Compared(
            Predicted.from_tensor(adapted),
            Predicted.from_tensor(source),
            None if bool(unmoved.isnan().any()) else Predicted.from_tensor(unmoved),
        )


@dataclass
class Monitor:
    """Watches the predictions of a stream and compares them with the source model's now and then.

    The verdict is on the last `window` images of those that were compared.
    """

    thresholds: Thresholds = THRESHOLDS
    every: int = 16
    """Predictions are compared on every so many batches, more often while something looks wrong."""
    window: int = WINDOW
    first: int = 64
    """So many images are compared at the beginning, and `first_batches`, which show if they are sorted."""
    first_batches: int = 4
    batches: int = 0
    suited: bool = False
    """Whether statistics suit the batch. They lose nothing but for a few batches after a change."""
    verdict: Verdict = "healthy"
    reason: str = "too few images were compared to tell"
    _window: deque[Compared] = field(default_factory=deque, repr=False)

    def wants_comparison(self, adapted: Predicted) -> bool:
        """Whether a batch should be compared, given the adapted predictions of it."""
        compared = sum(part.adapted.count for part in self._window)
        return (
            compared < self.first
            or (len(self._window) < self.first_batches and compared < self.window)
            or self.batches % self.every == 0
            or self.verdict != "healthy"
            or self.doubts_the_latest()
            or self._uses_fewer_classes(adapted)
        )

    def doubts_the_latest(self) -> bool:
        """Whether the last comparisons by themselves look wrong, so that the next must not wait."""
        latest = self._latest()
        return latest is not None and self._judged(latest)[0] != "healthy"

    def sees_mixed_up_runs(self, compared: Compared, *, young: bool) -> bool:
        """Whether this comparison, with those before, shows that labels in runs are mixed up.

        `young`: whether statistics are known from few images, as at the beginning. Later ones are of runs
        that were noticed, or of labels that are in none.
        """
        whole = sum(self._window, compared)
        latest = self._latest(compared)
        if latest is None or (latest is not compared and whole.adapted.count < 2 * FEWEST):
            return False  # under statistics of a few images an adapter is unsure of everything
        return (young and latest.mixes_up_runs) or whole.mixed_up > self.thresholds.mixed_up

    def _latest(self, compared: Compared | None = None) -> Compared | None:
        """A comparison with as many of the last ones as it takes to tell; None while there are too few."""
        latest = compared
        for part in reversed(self._window):
            if latest is not None and latest.adapted.count >= FEWEST:
                break
            latest = part if latest is None else part + latest
        return latest if latest is not None and latest.adapted.count >= FEWEST else None

    def _judged(self, compared: Compared) -> tuple[Verdict, str]:
        limits = self.thresholds
        if self.suited:
            limits = replace(limits, lost_by_statistics=math.inf)
        return compared.judged(limits)

    def _uses_fewer_classes(self, adapted: Predicted) -> bool:
        if not self._window or adapted.count < FEWEST:
            return False
        before = self._window[-1].adapted.effective_classes
        return adapted.effective_classes < self.thresholds.suspect_unmoved * before

    def update(self, compared: Compared | None, *, alone: bool = False) -> Verdict:
        """Take in a batch, compared or not; the verdict on the stream as it is now.

        `alone`: whether a batch by itself may show a collapse, as one whose labels are not in runs does.
        """
        self.batches += 1
        if compared is None:
            return self.verdict
        self._window.append(compared)
        while sum(part.adapted.count for part in list(self._window)[1:]) >= self.window:
            self._window.popleft()
        whole = self.window_sums
        if whole is not None and whole.adapted.count >= FEWEST:
            self.verdict, self.reason = self._judged(whole)
        if alone and compared.adapted.count >= SOME:
            verdict, reason = self._judged(compared)
            if verdict == "collapsed":
                self.verdict, self.reason = verdict, reason
        return self.verdict

    @property
    def window_sums(self) -> Compared | None:
        """Everything that the verdict is on, together."""
        if not self._window:
            return None
        first, *others = self._window
        return sum(others, first)

    def doubt(self, reason: str) -> Verdict:
        """Take in what else speaks against a healthy stream; the verdict then."""
        if self.verdict == "healthy":
            self.verdict, self.reason = "suspect", reason
        return self.verdict

    def forget(self, reason: str) -> None:
        """Begin anew: what was compared says nothing of what comes."""
        self._window.clear()
        self.verdict, self.reason = "healthy", reason

    def copied(self) -> Monitor:
        """The same monitor, which watches on by itself."""
        return replace(self, _window=self._window.copy())

    def to_tensors(self) -> dict[str, Tensor]:
        """Everything, as tensors; `Monitor.from_tensors` watches on from there."""
        saved = {
            "batches": torch.tensor(self.batches),
            "suited": torch.tensor(self.suited),
            "verdict": torch.tensor(VERDICTS.index(self.verdict)),
        }
        if self._window:
            saved["window"] = torch.stack([part.to_tensor() for part in self._window])
            found = [part.correlation for part in self._window]
            saved["correlations"] = torch.tensor(found, dtype=torch.float64)
        return saved

    @staticmethod
    def from_tensors(saved: Mapping[str, Tensor], thresholds: Thresholds = THRESHOLDS) -> Monitor:
        """The inverse of `to_tensors`, which does not save the thresholds."""
        window = deque(Compared.from_tensor(rows) for rows in saved.get("window", ()))
        if "correlations" in saved:
            found = saved["correlations"].tolist()
            window = deque(
                replace(part, correlation=each) for part, each in zip(window, found, strict=True)
            )
        monitor = Monitor(
            thresholds=thresholds,
            batches=int(saved["batches"]),
            suited=bool(saved.get("suited", False)),
            _window=window,
        )
        monitor.verdict = VERDICTS[int(saved["verdict"])]
        if (whole := monitor.window_sums) is not None and whole.adapted.count >= FEWEST:
            monitor.reason = monitor._judged(whole)[1]
        return monitor
