"""The batches of a stream in windows, few enough to draw: means, counts, and what happened in each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Batch = Mapping[str, Any]
"""One batch, as a line of the log."""

VERDICTS = ("healthy", "suspect", "collapsed")
EVENTS = ("reset", "skipped", "left out")
MOST_MARKS = 30
"""Events of one kind that are marked; of several close together, the first."""


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Neighbouring batches taken together.

    Attributes:
        first, last: the numbers of the first and the last batch of each window.
        means: by name, the mean over the images of each window; nan where nothing is known.
        counts: images per window and class, as predicted; None if no batch has them, or nobody asked.
        source_counts: the same for the source, for as many classes.
        verdicts: the worst of each window.
        events: by kind of event, the numbers of the batches where it happened, `MOST_MARKS` at most.
    """

    first: Floats
    last: Floats
    means: Mapping[str, Floats]
    counts: Floats | None
    source_counts: Floats | None
    verdicts: tuple[str, ...]
    events: Mapping[str, tuple[float, ...]]

    @property
    def classes(self) -> int:
        """The number of classes; 0 if no batch has counts."""
        return 0 if self.counts is None else self.counts.shape[1]

    @property
    def middle(self) -> Floats:
        """Where each window is drawn."""
        return (self.first + self.last) / 2

    def mean(self, name: str) -> Floats | None:
        """The means of a quantity, or None where no batch has it."""
        found = self.means.get(name)
        return None if found is None or np.isnan(found).all() else found


def windows_of(
    batches: Sequence[Batch], most: int, *, means: Sequence[str] = (), counts: bool = False
) -> Windows:
    """At most `most` windows of equally many batches, with the means of these quantities, or the counts."""
    groups = _groups(batches, most)
    kinds = ("class_counts", "source_class_counts") if counts else ()
    classes = max((len(batch.get(kind) or ()) for batch in batches for kind in kinds), default=0)
    found = {kind: _counts(groups, kind, classes) for kind in kinds}
    return Windows(
        first=np.array([number_of(group[0], "batch") for group in groups]),
        last=np.array([number_of(group[-1], "batch") for group in groups]),
        means={name: np.array([_mean(group, name) for group in groups]) for name in means},
        counts=found.get("class_counts"),
        source_counts=found.get("source_class_counts"),
        verdicts=tuple(max((_verdict(batch) for batch in g), key=VERDICTS.index) for g in groups),
        events={kind: _events(_groups(batches, MOST_MARKS), kind) for kind in EVENTS},
    )


def _groups(batches: Sequence[Batch], most: int) -> list[Sequence[Batch]]:
    """At most `most` groups of neighbours, of equally many batches."""
    bounds = np.linspace(0, len(batches), min(most, len(batches)) + 1).round().astype(int)
    return [batches[start:end] for start, end in pairwise(bounds)]


def happened(batch: Batch) -> list[str]:
    """What happened at a batch besides an update."""
    found = [str(batch["event"])] if batch.get("event") in ("reset", "skipped") else []
    lost = number_of(batch, "left_out", 0.0) + number_of(batch, "unreadable", 0.0)
    return [*found, "left out"] if lost > 0 else found


def number_of(values: Mapping[str, Any], name: str, otherwise: float = math.nan) -> float:
    """A finite number, or `otherwise` where there is none."""
    value = values.get(name)
    return otherwise if value is None or not math.isfinite(value) else float(value)


def _mean(group: Sequence[Batch], name: str) -> float:
    values = np.array([number_of(batch, name) for batch in group])
    weights = np.array([number_of(batch, "images", 1.0) for batch in group])
    known = np.isfinite(values) & (weights > 0)
    return float(np.average(values[known], weights=weights[known])) if known.any() else math.nan


def _counts(groups: Sequence[Sequence[Batch]], name: str, classes: int) -> Floats | None:
    if not any(batch.get(name) for group in groups for batch in group):
        return None
    counts = np.zeros((len(groups), classes))
    for row, group in zip(counts, groups, strict=True):
        for batch in group:
            found = batch.get(name) or ()
            row[: len(found)] += found
    return counts


def _verdict(batch: Batch) -> str:
    found = batch.get("verdict")
    return found if found in VERDICTS else VERDICTS[0]


def _events(groups: Sequence[Sequence[Batch]], kind: str) -> tuple[float, ...]:
    first = (next((b for b in group if kind in happened(b)), None) for group in groups)
    return tuple(number_of(batch, "batch") for batch in first if batch is not None)
