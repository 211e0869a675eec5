"""Every figure draws what it is given, in three formats, the same bytes every time."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.figure import Figure

from fenchel.paper.gaussian_experiment import GaussianOutcome, GaussianSettings
from fenchel.paper.gaussian_figure import (
    gaussian_csv,
    gaussian_figure,
    gaussian_table,
    gaussian_verdict,
)
from fenchel.report.curves import curves_csv, online_error_figure, task_loss_figure
from fenchel.report.errors import error_by_corruption_figure, error_by_severity_figure
from fenchel.report.heatmap import heat_map_figure
from fenchel.report.style import as_svg, save
from fenchel.report.tables import Measurement, error_table

METHODS = ["source", "entropy", "conjugate", "of my own"]
CURVES = {
    (m, s): [[3.0, 2.0, k], [2.0, 1.0, k]] for k, m in enumerate(METHODS) for s in ("fog", "$x")
}


def outcome() -> GaussianOutcome:
    settings = GaussianSettings(draws=3, iterations=4)
    random = np.random.default_rng(0)
    accuracies = {
        (shift, method): random.uniform(80, 90, (3, 5))
        for shift in settings.shifts
        for method in settings.methods
    }
    for method in settings.methods:
        accuracies[0.7, method][:, 0] = 85
    accuracies[0.7, "entropy"][1, -1] = 50
    accuracies[0.6, "conjugate"] += 20
    return GaussianOutcome(settings, accuracies, (99.0, 99.0, 99.0), 1.0)


FIGURES: dict[str, Callable[[], Figure]] = {
    "online error": lambda: online_error_figure(CURVES, METHODS, ["fog", "$x"]),
    "task loss": lambda: task_loss_figure(CURVES, METHODS, ["fog"]),
    "corruptions": lambda: error_by_corruption_figure(
        error_table({(m, s): [5.0, 6.0] for m, s in CURVES}, METHODS, ["fog", "$x"])
    ),
    "severities": lambda: error_by_severity_figure(
        {(m, s): Measurement((float(s), 2.0)) for m in METHODS for s in (1, 3, 5)}, METHODS
    ),
    "heat map": lambda: heat_map_figure(
        {"conjugate, sgd": {(r, t): 100 * r + t for r in (0.1, 0.01) for t in (1.0, 2.0)}}
    ),
    "gaussians": lambda: gaussian_figure(outcome()),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_the_same_file_twice_in_every_format(name: str, tmp_path: Path) -> None:
    beginnings = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    for suffix, beginning in beginnings.items():
        files = [tmp_path / f"{k}.{suffix}" for k in range(2)]
        for file in files:
            save(FIGURES[name](), file)
        assert files[0].read_bytes() == files[1].read_bytes()
        assert files[0].read_bytes().startswith(beginning)


@pytest.mark.parametrize("name", FIGURES)
def test_drawing_leaves_the_callers_settings_alone(name: str) -> None:
    before = dict(rcParams)
    FIGURES[name]()
    changed = {key for key, value in rcParams.items() if value != before[key]}
    assert changed <= {"backend"}  # chosen by matplotlib itself when it is first asked for


def test_every_method_is_in_the_legend() -> None:
    svg = as_svg(FIGURES["online error"]())
    assert all(f">{method}<" in svg for method in METHODS)


def test_a_method_without_curves_is_left_out() -> None:
    curves = {key: value for key, value in CURVES.items() if key[0] != "entropy"}
    svg = as_svg(online_error_figure(curves, METHODS, ["fog"]))
    assert ">entropy<" not in svg
    assert ">conjugate<" in svg


def test_a_prefix_keeps_the_ids_of_two_figures_apart() -> None:
    one, other = (as_svg(FIGURES["severities"](), prefix) for prefix in ("a-", "b-"))
    assert 'id="a-figure_1"' in one
    assert one.replace("a-", "b-") == other


def test_the_heat_map_frames_the_lowest_error() -> None:
    (axes, _) = FIGURES["heat map"]().axes
    (frame,) = axes.patches
    assert frame.get_xy() == (-0.5, -0.5)  # type: ignore[attr-defined]


def test_a_heat_map_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        heat_map_figure({"x": {(0.1, 1.0): float("nan")}})


def test_the_gaussians_have_three_panels_with_a_band_each_method() -> None:
    panels = gaussian_figure(outcome()).axes
    assert [panel.get_title(loc="left") for panel in panels] == [
        "λ = 0.6 (easy)", "λ = 0.65 (moderate)", "λ = 0.7 (hard)",
    ]  # fmt: skip
    assert all(len(panel.collections) == 3 for panel in panels)


def test_the_verdict_on_the_gaussians_follows_the_numbers() -> None:
    easy, _, hard = gaussian_verdict(outcome())
    assert "highest for conjugate in 3 of 3 draws, and on average for conjugate" in easy
    worse = (outcome().accuracies[0.7, "entropy"][:, -1] < 85).sum()
    assert f"entropy of the sigmoid in {worse}" in hard.partition("below the source")[2]


def test_the_csv_of_the_gaussians_has_every_point_of_the_figure() -> None:
    rows = list(csv.DictReader(gaussian_csv(outcome()).splitlines()))
    assert len(rows) == 9 * 5
    for row in rows:
        assert float(row["low"]) <= float(row["mean"]) <= float(row["high"])


def test_the_table_of_the_gaussians_marks_the_highest_accuracy() -> None:
    rows = {row[0].text: row for row in gaussian_table(outcome()).rows}
    assert len(rows) == 9
    assert rows["λ = 0.6, conjugate"][-1].emphasis == "best"
    assert rows["λ = 0.6, hard label"][-1].emphasis == ""


def test_a_second_panel_shows_the_distance_from_the_conjugate_seed_by_seed() -> None:
    errors = {("source", "fog"): [90.0, 80.0], ("entropy", "fog"): [6.0, 8.5]}
    alone = error_by_corruption_figure(error_table(errors, ["source", "entropy"], ["fog"]))
    assert len(alone.axes) == 1
    errors["conjugate", "fog"] = [5.0, 7.0]
    methods = ["source", "entropy", "conjugate"]
    _, distances = error_by_corruption_figure(error_table(errors, methods, ["fog"])).axes
    (drawn,) = distances.containers  # the source does not adapt, the conjugate is the line at zero
    marks, _, (whiskers,) = drawn.lines
    assert list(marks.get_xdata()) == [1.25]
    (whisker,) = whiskers.get_segments()
    assert whisker[1][0] - whisker[0][0] == pytest.approx(2 * np.std([1.0, 1.5], ddof=1))


def test_severities_have_such_a_panel_where_the_conjugate_is_among_the_methods() -> None:
    errors = {("entropy", at): Measurement((at + 1.0, at + 3.0)) for at in (1, 3)}
    assert len(error_by_severity_figure(errors, ["entropy"]).axes) == 1
    errors |= {("conjugate", at): Measurement((1.0, 2.0)) for at in (1, 3)}
    _, distances = error_by_severity_figure(errors, ["entropy", "conjugate"]).axes
    (drawn,) = distances.containers
    assert list(drawn.lines[0].get_ydata()) == [1.5, 3.5]  # means of (1, 2) and (3, 4)


def test_the_numbers_of_curves_are_means_over_seeds_up_to_the_shortest() -> None:
    written = curves_csv({("soft", "fog"): [[1.0, 2.0], [3.0, 5.0, 7.0]], ("bn", "fog"): [[4.0]]})
    assert written.splitlines() == [
        "method,shift,batch,mean,spread,seeds",
        f"soft,fog,1,2.0,{np.std([1, 3], ddof=1)},2",
        f"soft,fog,2,3.5,{np.std([2, 5], ddof=1)},2",
        "bn,fog,1,4.0,,1",
    ]
