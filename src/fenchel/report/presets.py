"""Our numbers beside the paper's, for a preset."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from fenchel.bench.presets.comparison import Comparison
from fenchel.report.by_severity import error_by_severity_figure
from fenchel.report.layout import Entry, Layout, to_csv
from fenchel.report.tables import Measurement

HEADINGS = ("line", "method", "setting", "ours", "paper", "difference")
PARTIAL = "*"


def comparison_table(rows: Sequence[Comparison], caption: str) -> Layout:
    """A row a number; our lowest error of each line is marked, and so is the paper's method."""
    lowest = {
        row.line.title: min(
            (Measurement(other.errors).mean for other in rows if _same_line(row, other)),
            default=None,
        )
        for row in rows
    }
    return Layout(caption, HEADINGS, tuple(_row(row, lowest[row.line.title]) for row in rows), 3)


def _same_line(row: Comparison, other: Comparison) -> bool:
    return other.line.title == row.line.title and bool(other.errors)


def _row(row: Comparison, lowest: float | None) -> tuple[Entry, ...]:
    ours = Measurement(row.errors)
    text = ours.text(2) + (PARTIAL if row.is_partial else "")
    if not row.errors:
        text = "failed" if row.failed else "missing"
    paper, difference = row.run.error, ""
    if paper is not None and row.errors:
        difference = f"{ours.mean - paper:+.2f}"
    return (
        Entry(row.line.title, "row" if row.method == "conjugate" else ""),
        Entry(row.method),
        Entry(str(row.run)),
        Entry(text, "best" if row.errors and ours.mean == lowest else "", ours.mean),
        Entry(_paper_text(row)),
        Entry(difference),
    )


def _paper_text(row: Comparison) -> str:
    if row.run.error is None:
        return "-"
    spread = "" if row.run.spread is None else f" ± {row.run.spread:.2f}"
    return f"{row.run.error:.2f}{spread}"


def comparison_csv(rows: Sequence[Comparison]) -> str:
    """Every number in full precision, with its setting, our seeds and how many shifts it covers."""
    headings = (
        "line", "data", "method", "optimizer", "learning_rate", "temperature", "ours",
        "ours_spread", "seeds", "shifts", "shifts_wanted", "failed_cells", "paper", "paper_spread",
    )  # fmt: skip
    values = []
    for row in rows:
        ours, run = Measurement(row.errors), row.run
        mean = ours.mean if row.errors else None
        title = (row.line.title, row.line.data, row.method)
        settings = (run.optimizer, run.learning_rate, run.temperature)
        counts = (len(row.errors), row.shifts, row.shifts_wanted, row.failed)
        values.append((*title, *settings, mean, ours.spread, *counts, run.error, run.spread))
    return to_csv(headings, values)


def preset_severity_figure(rows: Sequence[Comparison]) -> Figure | None:
    """Our errors against severity at the first setting of each severity; None if there are none."""
    errors: dict[tuple[str, int], Measurement] = {}
    for row in rows:
        if row.errors and len(row.line.severities) == 1:
            errors.setdefault((row.method, row.line.severities[0]), Measurement(row.errors))
    methods = list(dict.fromkeys(method for method, _ in errors))
    return error_by_severity_figure(errors, methods) if errors else None
