"""The map of the Gaussians: what holds in a draw, how draws are counted, what is drawn and written."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from fenchel.paper.gaussian_experiment import GaussianSettings, run_gaussians
from fenchel.paper.gaussian_map import (
    MapSettings,
    Point,
    as_map,
    draws_that_hold,
    improves_alone,
    map_settings,
    panels_hold,
    rises_fastest,
    run_map,
)
from fenchel.paper.gaussian_map_figure import (
    map_csv,
    map_figure,
    map_table,
    map_verdict,
    read_map,
)

SMALL = MapSettings(
    ranges=((1, 5), (2, 10)),
    rates=(0.01, 0.1),
    each=GaussianSettings(draws=2, samples=200, dimension=5, iterations=3, training_steps=10),
)
WIDE, NARROW = (1.0, 5.0), (2.0, 10.0)


def point(method: str, shift: float, final: float, mean: float = 80, **changes: object) -> Point:
    made = Point(WIDE, 0.01, shift, 0, method, source=80, final=final, mean=mean)
    return replace(made, **changes)  # type: ignore[arg-type]


def as_in_the_paper(**changes: object) -> list[Point]:
    """A draw that shows the three panels."""
    found = []
    for shift in (0.6, 0.65):
        found += [point("conjugate", shift, 99, 97), point("hard", shift, 98, 95)]
        found += [point("entropy", shift, 99, 96)]
    found += [point("conjugate", 0.7, 95), point("hard", 0.7, 80), point("entropy", 0.7, 60)]
    return [replace(each, **changes) for each in found]  # type: ignore[arg-type]


def with_another(points: list[Point], method: str, shift: float, **changes: object) -> list[Point]:
    """The same with one adaptation changed."""
    return [
        replace(each, **changes) if (each.method, each.shift) == (method, shift) else each  # type: ignore[arg-type]
        for each in points
    ]


def frames(points: list[Point]) -> list[tuple[float, float]]:
    """Where the figure has frames."""
    patches = [patch for axes in map_figure(points).axes for patch in axes.patches]
    return [patch.get_xy() for patch in patches if isinstance(patch, Rectangle)]


def test_a_draw_like_the_papers_is_recognised() -> None:
    assert panels_hold(as_map(as_in_the_paper()), WIDE, 0.01, 0)


@pytest.mark.parametrize(
    ("method", "shift", "changes"),
    [
        ("conjugate", 0.6, {"mean": 95.5}),
        ("conjugate", 0.65, {"final": 80.5}),
        ("entropy", 0.65, {"mean": 97.0}),
        ("conjugate", 0.7, {"final": 80.5}),
        ("hard", 0.7, {"final": 90.0}),
        ("entropy", 0.7, {"final": 79.5}),
    ],
)
def test_a_draw_that_misses_one_of_the_papers_findings_does_not_count(
    method: str, shift: float, changes: dict[str, float]
) -> None:
    points = with_another(as_in_the_paper(), method, shift, **changes)
    assert not panels_hold(as_map(points), WIDE, 0.01, 0)


def test_the_margin_is_asked_of_gains_and_of_losses() -> None:
    assert point("hard", 0.6, 81).improves
    assert not point("hard", 0.6, 80.9).improves
    assert point("hard", 0.6, 79).falls
    assert not point("hard", 0.6, 79.1).falls


def test_the_fastest_is_so_without_a_tie() -> None:
    methods = {"conjugate": point("conjugate", 0.6, 99, 97), "hard": point("hard", 0.6, 99, 97)}
    assert not rises_fastest(methods)
    assert improves_alone(
        {"conjugate": point("conjugate", 0.7, 95), "entropy": point("entropy", 0.7, 60)}
    )


def test_draws_are_counted_by_range_and_rate_and_framed_where_they_hold() -> None:
    held = as_in_the_paper() + as_in_the_paper(draw=1)
    other = with_another(as_in_the_paper(variances=NARROW), "hard", 0.7, final=90.0)
    points = held + other + [replace(each, draw=1) for each in other]
    assert draws_that_hold(points) == {(WIDE, 0.01): 2, (NARROW, 0.01): 0}
    together = [row[-1].text for row in map_table(points).rows]
    assert together == ["2", "0"]
    first, second, third = map_verdict(points)
    assert "in 2 of 4 runs, and in more than half of the draws at 1 of the 2 choices" in first
    assert second == "Where they do: variances 1 to 5, rate 0.01 (2 of 2)."
    assert "all objectives improve in 0 runs; the conjugate in 0, the hard label in 0" in third
    assert "the entropy of the sigmoid in 4 end a point" in third
    assert third.endswith("the conjugate alone improves, and the entropy falls, in 2.")
    assert frames(points) == [(-0.5, -0.5)]


def test_where_nothing_holds_the_verdict_says_so_and_nothing_is_framed() -> None:
    points = with_another(as_in_the_paper(), "hard", 0.7, final=90.0)
    first, second = map_verdict(points)
    assert "hold together in 0 of 1 runs" in first
    assert "at none of the 1 choices" in first
    assert second.startswith("At λ = 0.7")
    assert frames(points) == []


def test_a_point_is_what_the_experiment_finds_at_its_range_and_rate() -> None:
    points = run_map(SMALL)
    settings = replace(SMALL.each, low_variance=2, high_variance=10, learning_rate=0.1)
    curves = run_gaussians(settings).accuracies[0.65, "hard"]
    found = as_map(points)[NARROW, 0.1, 0.65, 1]["hard"]
    assert found.source == pytest.approx(curves[1, 0], abs=1e-4)
    assert found.final == pytest.approx(curves[1, -1], abs=1e-4)
    assert found.mean == pytest.approx(curves[1, 1:].mean(), abs=1e-4)
    assert len(points) == SMALL.adaptations


def test_numbers_come_back_from_their_file() -> None:
    points = run_map(SMALL)
    rows = list(csv.DictReader(map_csv(points).splitlines()))
    assert read_map(rows) == points


def test_the_map_covers_the_papers_shifts_and_the_choice_of_the_figure() -> None:
    for scale in ("full", "cpu", "smoke"):
        settings, usual = map_settings(scale), GaussianSettings()
        assert settings.each.draws >= 10
        assert set(usual.shifts) <= set(settings.each.shifts)
        assert (usual.low_variance, usual.high_variance) in settings.ranges
        assert usual.learning_rate in settings.rates
    with pytest.raises(ValueError, match="scale"):
        map_settings("huge")


def test_means_and_axes_of_a_draw_are_the_same_at_every_range() -> None:
    near, far = (
        as_map(run_map(replace(SMALL, ranges=((low, low),), rates=(0.01,)))) for low in (1e-6, 2e-6)
    )
    (a, *_), (b, *_) = near.values(), far.values()
    assert np.isclose(a["conjugate"].source, b["conjugate"].source)
