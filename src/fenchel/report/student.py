"""Is one method better than another on streams that were not run? Student's interval over streams."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from fenchel.bench.record import Record
from fenchel.report.results import shift_errors

CONFIDENCE = 0.95


@dataclass(frozen=True)
class StreamDifference:
    """A paired difference over streams: error of a method minus error of a reference, in percent.

    Attributes:
        estimate: the mean of the differences.
        low, high: Student's interval, at 95 %; unbounded for a single stream.
        p_value: two-sided, for a true mean of zero.
        streams: over how many the mean goes.
    """

    estimate: float
    low: float
    high: float
    p_value: float
    streams: int


def student(differences: Sequence[float]) -> StreamDifference:
    """The mean of paired differences d_1 ... d_n with the interval mean ± t_(n-1) s / sqrt(n).

    >>> found = student([1.0, 2.0, 3.0])
    >>> f"{found.estimate:g} [{found.low:.2f}, {found.high:.2f}]"
    '2 [-0.48, 4.48]'
    """
    values = np.asarray(differences, dtype=np.float64)
    count, mean = len(values), float(values.mean())
    if count < 2:
        return StreamDifference(mean, -math.inf, math.inf, 1.0, count)
    error = float(values.std(ddof=1)) / math.sqrt(count)
    half_width = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)) * error
    p_value = float(mean == 0)  # where all differences are the same
    if error > 0:
        p_value = float(2 * stats.t.sf(abs(mean) / error, count - 1))
    return StreamDifference(mean, mean - half_width, mean + half_width, p_value, count)


def over_streams(ours: Sequence[Record], theirs: Sequence[Record]) -> StreamDifference | None:
    """The difference over the shifts that both have, each the mean of its seeds; None if there are none.

    Seeds of one shift are alike, so they are no further samples of what shifts do. Where there is
    one shift alone, the interval goes over seeds.
    """
    first, second = _errors(ours), _errors(theirs)
    common = [key for key in first if key in second]
    if not common:
        return None
    by_shift: dict[str, list[float]] = {}
    for key in common:
        by_shift.setdefault(key[0], []).append(first[key] - second[key])
    if len(by_shift) == 1:
        return student(next(iter(by_shift.values())))
    return student([float(np.mean(found)) for found in by_shift.values()])


def _errors(records: Sequence[Record]) -> dict[tuple[str, int], float]:
    """Errors in percent by (shift, seed)."""
    return {
        (f"{name} {severity}", record.cell.seed): error
        for record in records
        for (name, severity), error in shift_errors(record).items()
    }
