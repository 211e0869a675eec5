"""What the numbers on meta-learned objectives say, in words that are computed from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from fenchel.bench.presets.meta import BASELINES, EXPECTED
from fenchel.bench.presets.meta_pieces import Learned, MetaOutcome
from fenchel.report.learned_numbers import errors_by_seed, grouped
from fenchel.report.tables import Measurement

CONFIDENCE = 0.95


@dataclass(frozen=True)
class PairedDifference:
    """Error of one objective minus that of another, in percent: negative where the first is better.

    The interval is Student's over corruptions, each the mean over seeds: seeds meet the same images, so
    they are no further samples, and `seeds_lower` says in how many the mean is lower.
    """

    estimate: float
    half_width: float
    seeds_lower: int
    seeds: int
    corruptions: int

    def __str__(self) -> str:
        low, high = self.estimate - self.half_width, self.estimate + self.half_width
        return (
            f"{self.estimate:+.2f} [{low:+.2f}, {high:+.2f}], lower in {self.seeds_lower} of "
            f"{self.seeds} seeds"
        )

    @property
    def word(self) -> str:
        """`better`, `worse`, or `not told apart` where the interval holds zero."""
        if not abs(self.estimate) > self.half_width:
            return "not told apart"
        return "better" if self.estimate < 0 else "worse"


def paired_difference(
    errors: npt.NDArray[np.float64], reference: npt.NDArray[np.float64]
) -> PairedDifference:
    """The difference of errors (seeds, corruptions), seed by seed and corruption by corruption.

    >>> paired_difference(np.array([[1.0, 2.0, 3.0]]), np.array([[2.0, 3.0, 4.5]])).word
    'better'
    """
    difference = errors - reference
    seeds, corruptions = difference.shape
    by_corruption = difference.mean(0)
    half_width = math.inf
    if corruptions > 1:
        quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, corruptions - 1))
        half_width = quantile * float(by_corruption.std(ddof=1)) / math.sqrt(corruptions)
    lower = int((difference.mean(1) < 0).sum())
    return PairedDifference(float(by_corruption.mean()), half_width, lower, seeds, corruptions)


def learned_verdict(outcome: MetaOutcome) -> list[str]:
    """Which formula explains what was learned, and how it does beside the others; a line each."""
    lines = []
    for (source, task_loss), entries in grouped(outcome).items():
        lines.append(f"source {source}, task {task_loss}: {_explained(entries)}")
        lines += [f"    {text}" for text in _compared(outcome, entries)]
    return lines


def _explained(entries: Sequence[Learned]) -> str:
    """Which fit has the lower AIC, and whether it is the expected one."""
    expected = EXPECTED[entries[0].source]
    count = sum(entry.fits.better == expected for entry in entries)
    entropy, quadratic = (
        Measurement(tuple(entry.fits.by_name()[name].r_squared for entry in entries)).text(3)
        for name in ("entropy", "quadratic")
    )
    agrees = "as the paper finds"
    if count < len(entries):
        agrees = "unlike the paper" if count == 0 else "so the seeds do not agree"
    return (
        f"the {expected} explains the learned objective better than the other formula in {count} of "
        f"{len(entries)} seeds, {agrees} (R² {entropy} entropy, {quadratic} quadratic)"
    )


def _compared(outcome: MetaOutcome, entries: Sequence[Learned]) -> list[str]:
    expected = f"{EXPECTED[entries[0].source]} fit"
    pairs = [("learned", name) for name in BASELINES]
    pairs += [(expected, "learned"), (expected, "conjugate")]
    found = []
    for first, second in pairs:
        difference = paired_difference(
            errors_by_seed(outcome, entries, first), errors_by_seed(outcome, entries, second)
        )
        found.append(f"{first} against {second}: {difference.word}, {difference}")
    return found
