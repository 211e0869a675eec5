"""Tables of errors: rows of methods, columns of shifts, mean and spread over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
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

    def __str__(self) -> str:
        if not self.values:
            return "-"
        return f"{self.mean:.1f}" + ("" if self.spread is None else f" ± {self.spread:.1f}")


@dataclass(frozen=True)
class ErrorTable:
    """Errors in percent by row and column, with the mean over the columns as the last one."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]

    def row(self, name: str) -> tuple[Cell, ...]:
        """The cells of a row and their mean, seed by seed."""
        cells = tuple(self.cells[name, column] for column in self.columns)
        by_seed = zip(*(cell.values for cell in cells), strict=True)
        return (*cells, Cell(tuple(statistics.fmean(values) for values in by_seed)))

    @property
    def headings(self) -> tuple[str, ...]:
        """The columns and the mean."""
        return (*self.columns, "mean")

    def best(self) -> tuple[str, ...]:
        """For every heading, the row with the lowest mean."""
        by_row = {name: self.row(name) for name in self.rows}
        return tuple(
            min(self.rows, key=lambda name: by_row[name][index].mean)
            for index in range(len(self.headings))
        )


def error_table(
    errors: Mapping[tuple[str, str], Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
) -> ErrorTable:
    """The table of errors given by (row, column)."""
    cells = {key: Cell(tuple(values)) for key, values in errors.items()}
    return ErrorTable(tuple(rows), tuple(columns), cells)
