"""The walk along one setting at a time, on errors that are known."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fenchel.calibration.trials import Axis, Walk

RATE = Axis(name="rate", start=1.0, factor=2.0, lowest=1 / 8, highest=8.0)
WARMTH = Axis(name="temperature", start=1.0, factor=2.0, lowest=0.25, highest=8.0)


def bowl(best_rate: float, best_temperature: float) -> Any:
    def error(settings: dict[str, Any]) -> float:
        away = abs(math.log2(settings["rate"] / best_rate))
        return 20 + away + abs(math.log2(settings["temperature"] / best_temperature))

    return error


@pytest.mark.parametrize(("rate", "temperature"), [(1, 1), (4, 1), (0.5, 2), (8, 0.25)])
def test_it_finds_the_bottom_of_a_bowl(rate: float, temperature: float) -> None:
    best = Walk(bowl(rate, temperature), [RATE, WARMTH], budget=50).best()
    assert best.settings == {"rate": rate, "temperature": temperature}
    assert best.error == 20


def test_it_does_not_leave_the_range() -> None:
    best = Walk(bowl(64, 1), [RATE], fixed={"temperature": 1}, budget=50).best()
    assert best.settings["rate"] == 8


def test_the_budget_is_kept_and_no_setting_is_tried_twice() -> None:
    walk = Walk(bowl(8, 8), [RATE, WARMTH], budget=4)
    walk.best()
    assert len(walk.trials) == 4
    assert len({tuple(trial.settings.items()) for trial in walk.trials}) == 4


def test_a_difference_that_may_be_chance_leads_nowhere() -> None:
    walk = Walk(lambda settings: 20 - 0.05 * settings["rate"], [RATE], budget=50)
    assert walk.best().settings == {"rate": 1.0}


def test_a_trial_that_is_not_finite_is_the_worst() -> None:
    walk = Walk(lambda settings: math.nan if settings["rate"] > 1 else 20.0, [RATE], budget=50)
    assert walk.best().settings == {"rate": 1.0}
    assert max(trial.error for trial in walk.trials) == 100
