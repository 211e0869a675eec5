"""`--format`: how a command prints its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fenchel.cli.console import print_table
from fenchel.names import unknown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fenchel.report.layout import Layout

FORMATS = ("terminal", "markdown", "latex", "csv")


def check_format(form: str) -> None:
    """Refuse an unknown format before any work is done."""
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)


def show_tables(layouts: Iterable[Layout], form: str, numbers: str) -> None:
    """Print tables on standard output, or, as CSV, the numbers behind them."""
    from fenchel.report.layout import to_latex, to_markdown, to_terminal

    if form == "csv":
        print(numbers, end="")
        return
    for place, layout in enumerate(layouts):
        if place:
            print()
        if form == "terminal":
            print_table(to_terminal(layout))
        else:
            print(to_latex(layout) if form == "latex" else to_markdown(layout), end="")
