"""Learning rates as functions of the step, so that a run continues from a number alone."""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[float], float]
"""Maps progress in [0, 1] to a factor of the learning rate; see `learning_rate`."""

WARM_UP = 0.3
"""The share of a one-cycle run in which the rate rises."""

START = 1 / 25
"""The rate of a one-cycle run's first step, as a share of its peak."""


def cosine(progress: float) -> float:
    """Falls from 1 to 0 along half a cosine.

    >>> [round(cosine(t), 3) for t in (0.0, 0.5, 1.0)]
    [1.0, 0.5, 0.0]
    """
    return (1 + math.cos(math.pi * progress)) / 2


def one_cycle(progress: float) -> float:
    """Rises from 1/25 to 1 over the first 30 %, then falls to 0, both along half a cosine.

    >>> [round(one_cycle(t), 3) for t in (0.0, 0.3, 0.65, 1.0)]
    [0.04, 1.0, 0.5, 0.0]
    """
    if progress < WARM_UP:
        return START + (1 - START) * (1 - cosine(progress / WARM_UP))
    return cosine((progress - WARM_UP) / (1 - WARM_UP))


def constant(progress: float) -> float:
    """Always 1."""
    return 1.0


SCHEDULES: dict[str, Schedule] = {
    "cosine": cosine,
    "one-cycle": one_cycle,
    "constant": constant,
}


def learning_rate(schedule: Schedule, peak: float, final: float, step: int, steps: int) -> float:
    """The rate of step `step` out of `steps`: between `final` (factor 0) and `peak` (factor 1)."""
    return final + (peak - final) * schedule(step / max(1, steps))
