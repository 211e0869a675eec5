"""Tables of errors: rows of methods, columns of shifts, mean and spread over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fenchel.report.layout import Layout, TableEntry


@dataclass(frozen=True)
class Measurement:
    """Repeated measurements of one number; lower is better."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Their mean, not a number if there are none."""
        return statistics.fmean(self.values) if self.values else math.nan

    @property
    def spread(self) -> float | None:
        """Their standard deviation, where there are at least two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def text(self, digits: int = 1) -> str:
        """`12.3 ± 0.4`, the bare mean of a single measurement, or a dash for none."""
        if not self.values:
            return "-"
        spread = "" if self.spread is None else f" ± {self.spread:.{digits}f}"
        return f"{self.mean:.{digits}f}{spread}"

    def __str__(self) -> str:
        return self.text()


NOTHING = Measurement(())


@dataclass(frozen=True)
class ErrorTable:
    """Errors in percent by row and column, with the mean over the columns as the last one.

    A cell may be missing. The mean of a row is taken measurement by measurement (seed by seed), and
    only if the row has every column and equally many measurements in each: anything else would
    compare means over different shifts.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], Measurement]

    def row(self, name: str) -> tuple[Measurement, ...]:
        """The cells of a row and their mean, seed by seed."""
        cells = tuple(self.cells.get((name, column), NOTHING) for column in self.columns)
        if len({len(cell.values) for cell in cells}) != 1:
            return (*cells, NOTHING)
        by_seed = zip(*(cell.values for cell in cells), strict=True)
        return (*cells, Measurement(tuple(statistics.fmean(values) for values in by_seed)))

    @property
    def headings(self) -> tuple[str, ...]:
        """The columns and the mean."""
        return (*self.columns, "mean")

    def best(self) -> tuple[frozenset[str], ...]:
        """For every heading, the rows with the lowest mean; more than one if they tie."""
        by_row = {name: self.row(name) for name in self.rows}
        return tuple(_lowest(by_row, index) for index in range(len(self.headings)))

    def layout(self, caption: str, corner: str = "method", digits: int = 1) -> Layout:
        """The table as text, lowest means marked as best."""
        best = self.best()
        rows = tuple(
            (
                TableEntry(name, emphasis="row" if name == "conjugate" else ""),
                *(
                    TableEntry(cell.text(digits), "best" if name in winners else "", cell.mean)
                    for cell, winners in zip(self.row(name), best, strict=True)
                ),
            )
            for name in self.rows
        )
        headings = (corner, *(heading.replace("_", " ") for heading in self.headings))
        return Layout(caption, headings, rows)

    def numbers(self) -> list[tuple[str, str, float, float | None, int]]:
        """Row, column, mean, spread and how many measurements, of every cell that has any."""
        return [
            (name, heading, cell.mean, cell.spread, len(cell.values))
            for name in self.rows
            for heading, cell in zip(self.headings, self.row(name), strict=True)
            if cell.values
        ]


def _lowest(by_row: Mapping[str, Sequence[Measurement]], index: int) -> frozenset[str]:
    means = {name: cells[index].mean for name, cells in by_row.items() if cells[index].values}
    lowest = min(means.values(), default=math.nan)
    return frozenset(name for name, mean in means.items() if mean == lowest)


def error_table(
    errors: Mapping[tuple[str, str], Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
) -> ErrorTable:
    """The table of errors given by (row, column)."""
    cells = {key: Measurement(tuple(values)) for key, values in errors.items()}
    return ErrorTable(tuple(rows), tuple(columns), cells)
