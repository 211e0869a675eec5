"""Holm's correction against the closed test that it stands for, step by step, and by what it promises."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fenchel.report.several import holm


def closed_test(p_values: dict[str, float]) -> dict[str, float]:
    """Every set of hypotheses tested by Bonferroni; one falls with all the sets that it is in."""
    names = list(p_values)
    found = dict.fromkeys(names, 0.0)
    for size in range(1, len(names) + 1):
        for chosen in combinations(names, size):
            joint = min(1.0, size * min(p_values[name] for name in chosen))
            for name in chosen:
                found[name] = max(found[name], joint)
    return found


def rejected(p_values: dict[str, float], level: float) -> set[str]:
    """Holm's own steps: the smallest against level / m, the next against level / (m - 1), until one holds."""
    left, fallen = sorted(p_values, key=p_values.__getitem__), set()
    while left and p_values[left[0]] <= level / len(left):
        fallen.add(left.pop(0))
    return fallen


@pytest.mark.parametrize("seed", range(20))
def test_the_correction_is_that_of_the_closed_test_and_of_the_steps(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = np.round(random.random(7) ** 4, 2).tolist()  # some small, some equal
    p_values = dict(zip("abcdefg", values, strict=True))
    found = holm(p_values)
    assert found == pytest.approx(closed_test(p_values))
    for level in (0.001, 0.0512, 0.2049):
        assert {name for name, p in found.items() if p <= level} == rejected(p_values, level)


def test_one_comparison_stays_as_it_is_and_none_are_none() -> None:
    assert holm({"a": 0.03}) == {"a": 0.03}
    assert holm({}) == {}


def test_a_correction_never_helps_and_never_exceeds_bonferroni() -> None:
    p_values = {"a": 0.2, "b": 0.001, "c": 0.02, "d": 0.9}
    for name, corrected in holm(p_values).items():
        assert p_values[name] <= corrected <= min(1, 4 * p_values[name])


def test_false_findings_among_true_nulls_stay_as_rare_as_promised() -> None:
    random = np.random.default_rng(0)
    families = random.random((2000, 10))
    found = [min(holm(dict(enumerate(family))).values()) < 0.05 for family in families.tolist()]
    without = (families.min(1) < 0.05).mean()
    assert np.mean(found) < 0.065
    assert without > 0.3


@pytest.mark.parametrize("wrong", [-0.1, 1.5, float("nan")])
def test_what_is_no_p_value_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm({"a": 0.5, "b": wrong})
