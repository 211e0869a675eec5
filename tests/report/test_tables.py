"""Means, spreads and winners of error tables; figures that are the same files every time."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest
import torch

from fenchel.losses import PolyLoss
from fenchel.report.objective import objective_figure
from fenchel.report.style import as_svg, save
from fenchel.report.tables import Measurement, error_table


def test_a_cell_shows_mean_and_spread() -> None:
    cell = Measurement((1.0, 2.0, 4.0))
    assert str(cell) == f"{7 / 3:.1f} ± {statistics.stdev((1.0, 2.0, 4.0)):.1f}"


def test_a_single_measurement_has_no_spread() -> None:
    assert Measurement((3.0,)).spread is None
    assert str(Measurement((3.0,))) == "3.0"


def test_no_measurement_is_not_a_number() -> None:
    assert math.isnan(Measurement(()).mean)
    assert str(Measurement(())) == "-"


def test_the_mean_column_averages_over_columns_seed_by_seed() -> None:
    table = error_table(
        {("a", "x"): [1.0, 3.0], ("a", "y"): [5.0, 9.0], ("b", "x"): [0, 0], ("b", "y"): [20, 20]},
        ["a", "b"],
        ["x", "y"],
    )
    assert table.headings == ("x", "y", "mean")
    assert table.row("a")[-1].values == (3.0, 6.0)
    assert table.best() == ({"b"}, {"a"}, {"a"})


def test_equal_figures_are_equal_files(tmp_path: Path) -> None:
    torch.manual_seed(0)
    for suffix in ("png", "svg", "pdf"):
        files = [tmp_path / f"{k}.{suffix}" for k in range(2)]
        for file in files:
            save(objective_figure(PolyLoss(epsilon=6.0), "poly", 10), file)
        assert files[0].read_bytes() == files[1].read_bytes()


def test_an_unknown_figure_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="png"):
        save(objective_figure(PolyLoss(), "poly", 3), tmp_path / "figure.gif")


def test_an_svg_can_stand_inside_a_page() -> None:
    assert as_svg(objective_figure(PolyLoss(), "poly", 3)).startswith("<svg")
