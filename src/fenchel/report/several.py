"""Several comparisons at once: p-values that keep their meaning, and how sure differences are."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

import numpy as np

LEVEL = 0.05
"""Below this a corrected p-value tells two methods apart."""
MARK = "†"
"""Behind a difference that is told apart."""

Key = TypeVar("Key", bound=Hashable)


def told_apart(corrected: float, low: float, high: float) -> bool:
    """Whether a corrected p-value over images is low, and an interval over streams leaves out zero.

    >>> told_apart(0.01, 0.2, 0.9), told_apart(0.01, -0.2, 0.9), told_apart(0.2, 0.2, 0.9)
    (True, False, False)
    """
    return corrected < LEVEL and (low > 0 or high < 0)


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """P-values by Holm's correction: the chance of one false finding or more stays below the level.

    In ascending order p_(1) <= ... <= p_(m), the corrected value is

        max over j <= i of min(1, (m - j + 1) p_(j))

    so the smallest is multiplied by m, the next by m - 1, and none falls below the one before it.
    It holds however the comparisons depend on one another.

    >>> holm({"entropy": 0.01, "hard": 0.04, "soft": 0.03})
    {'entropy': 0.03, 'hard': 0.06, 'soft': 0.06}
    """
    if not p_values:
        return {}
    given = np.array(list(p_values.values()))
    if not ((given >= 0) & (given <= 1)).all():
        raise ValueError(
            f"p-values lie between 0 and 1; got {given.tolist()}. Correct p-values, not differences."
        )
    order = np.argsort(given, kind="stable")
    factors = np.arange(len(given), 0, -1)
    corrected = np.empty_like(given)
    corrected[order] = np.maximum.accumulate(np.minimum(1, factors * given[order]))
    return dict(zip(p_values, corrected.tolist(), strict=True))
