"""Which settings do best on shifted source images, found by walking along one setting at a time."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Settings = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """Settings, and their error in percent: the mean over all shifts."""

    settings: Settings
    error: float


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A setting that is multiplied or divided by a factor for as long as the error falls."""

    name: str
    start: float
    factor: float
    lowest: float
    highest: float

    def beside(self, value: float, upwards: bool) -> float | None:
        """The next value in a direction; None at the end."""
        found = value * self.factor if upwards else value / self.factor
        inside = self.lowest * 0.999 <= found <= self.highest * 1.001
        return float(f"{found:.3g}") if inside else None


@dataclass
class Walk:
    """Tries settings, each once, until nothing beside the best is better or the budget is spent.

    measure: the error of some settings, in percent.
    budget: how many settings are tried at most.
    needed: points by which another setting must be better, so that chance does not lead far away.
    """

    measure: Callable[[Settings], float]
    axes: Sequence[Axis]
    fixed: Settings = field(default_factory=dict)
    budget: int = 9
    needed: float = 0.1
    trials: list[Trial] = field(default_factory=list)

    def best(self) -> Trial:
        """The best settings found."""
        here = self._tried({axis.name: axis.start for axis in self.axes})
        for axis in self.axes:
            up = self._along(here, axis, upwards=True)
            here = up if up is not here else self._along(here, axis, upwards=False)
        return here

    def _along(self, here: Trial, axis: Axis, *, upwards: bool) -> Trial:
        """The best trial in a direction, which ends where the error rises."""
        while True:
            value = axis.beside(here.settings[axis.name], upwards)
            if value is None or len(self.trials) >= self.budget:
                return here
            there = self._tried({**here.settings, axis.name: value})
            if not there.error < here.error - self.needed:
                return here
            here = there

    def _tried(self, settings: Mapping[str, Any]) -> Trial:
        whole = {**self.fixed, **settings}
        for trial in self.trials:
            if trial.settings == whole:
                return trial
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a trial that does harm is what is looked for
            error = self.measure(whole)
        self.trials.append(Trial(whole, error if math.isfinite(error) else 100.0))
        return self.trials[-1]
