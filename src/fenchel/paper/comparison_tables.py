"""Our numbers beside the paper's, for a preset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

from matplotlib.figure import Figure

from fenchel.paper.comparison import Comparison
from fenchel.paper.pairing import NOT_PAIRED, REFERENCE, Differences, Paired
from fenchel.report.errors import error_by_corruption_figure, error_by_severity_figure
from fenchel.report.layout import Layout, TableEntry, to_csv
from fenchel.report.results import shift_errors
from fenchel.report.tables import ErrorTable, Measurement, error_table

HEADINGS = ("line", "method", "setting", "ours", "paper", "ours - paper", f"- {REFERENCE} [95 %]")
PARTIAL = "*"


def comparison_table(
    rows: Sequence[Comparison], caption: str, paired: Differences = NOT_PAIRED
) -> Layout:
    """One row per number; our lowest error of each line is marked, and so is the paper's method."""
    lowest = {
        row.line.title: min(
            (Measurement(other.errors).mean for other in rows if _same_line(row, other)),
            default=None,
        )
        for row in rows
    }
    entries = tuple(
        _row(row, lowest[row.line.title], paired.get((row.line.title, row.method))) for row in rows
    )
    return Layout(caption, HEADINGS, entries, 3)


def _same_line(row: Comparison, other: Comparison) -> bool:
    return other.line.title == row.line.title and bool(other.errors)


def _row(row: Comparison, lowest: float | None, paired: Paired | None) -> tuple[TableEntry, ...]:
    ours = Measurement(row.errors)
    text = ours.text(2) + (PARTIAL if row.is_partial else "")
    if not row.errors:
        text = "failed" if row.failed else "missing"
    paper, difference = row.run.error, ""
    if paper is not None and row.errors:
        difference = f"{ours.mean - paper:+.2f}"
    return (
        TableEntry(row.line.title, "row" if row.method == REFERENCE else ""),
        TableEntry(row.method),
        TableEntry(str(row.run)),
        TableEntry(text, "best" if row.errors and ours.mean == lowest else "", ours.mean),
        TableEntry(_paper_text(row)),
        TableEntry(difference),
        TableEntry("" if paired is None else paired.interval),
    )


def _paper_text(row: Comparison) -> str:
    if row.run.error is None:
        return "-"
    spread = "" if row.run.spread is None else f" ± {row.run.spread:.2f}"
    return f"{row.run.error:.2f}{spread}"


def comparison_csv(rows: Sequence[Comparison], paired: Differences = NOT_PAIRED) -> str:
    """Every number in full precision, with its setting, our seeds and how many shifts it covers."""
    headings = (
        "line", "data", "training_loss", "method", "optimizer", "learning_rate", "temperature",
        "ours", "ours_spread", "seeds", "shifts", "shifts_wanted", "failed_cells", "paper",
        "paper_spread", "minus_conjugate", "low", "high", "p_value", "images", "p_holm",
        "streams_low", "streams_high", "streams_p_value", "streams",
    )  # fmt: skip
    values = []
    for row in rows:
        ours, run = Measurement(row.errors), row.run
        mean = ours.mean if row.errors else None
        title = (row.line.title, row.line.data, row.line.source.loss, row.method)
        settings = (run.optimizer, run.learning_rate, run.temperature)
        counts = (len(row.errors), row.shifts, row.shifts_wanted, row.failed)
        paper = (run.error, run.spread)
        found = paired.get((row.line.title, row.method))
        against: tuple[float | None, ...] = (None,) * 10
        if found is not None:
            _, low, high, *rest = astuple(found.streams)
            bounds = (None, None) if found.streams.streams < 2 else (low, high)
            against = (*astuple(found.images), found.corrected, *bounds, *rest)
        values.append((*title, *settings, mean, ours.spread, *counts, *paper, *against))
    return to_csv(headings, values)


def shifts_table(rows: Sequence[Comparison], title: str) -> ErrorTable:
    """Errors by corruption on the line with that title, mean and spread over seeds."""
    errors: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.line.title == title:
            for record in row.records:
                for (shift, _), error in shift_errors(record).items():
                    errors.setdefault((row.method, shift), []).append(error)
    methods = dict.fromkeys(method for method, _ in errors)
    return error_table(errors, list(methods), list(dict.fromkeys(shift for _, shift in errors)))


def shifts_csv(rows: Sequence[Comparison]) -> str:
    """Errors by line, method and corruption, in full precision."""
    titles = dict.fromkeys(row.line.title for row in rows)
    values = [
        (title, *numbers) for title in titles for numbers in shifts_table(rows, title).numbers()
    ]
    return to_csv(("line", "method", "shift", "ours", "ours_spread", "seeds"), values)


def shifts_figures(rows: Sequence[Comparison]) -> dict[str, Figure]:
    """Figures of errors by corruption, for lines over several shifts, by title of the line."""
    tables = {
        title: shifts_table(rows, title) for title in dict.fromkeys(r.line.title for r in rows)
    }
    return {
        title: error_by_corruption_figure(table)
        for title, table in tables.items()
        if len(table.columns) > 1
    }


def severity_figures(rows: Sequence[Comparison]) -> dict[str, Figure]:
    """Our errors against severity, by data set, at the first setting of each severity that was run."""
    by_data: dict[str, dict[tuple[str, int], Measurement]] = {}
    for row in rows:
        if row.errors and len(row.line.severities) == 1:
            errors = by_data.setdefault(row.line.data, {})
            errors.setdefault((row.method, row.line.severities[0]), Measurement(row.errors))
    return {
        data: error_by_severity_figure(errors, list(dict.fromkeys(method for method, _ in errors)))
        for data, errors in by_data.items()
    }
