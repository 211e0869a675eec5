"""`--format`: how a command prints its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.measure import measure_renderables

from fenchel.cli.console import out
from fenchel.names import unknown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fenchel.report.layout import Layout

WIDEST = 10_000
FORMATS = ("terminal", "markdown", "latex", "csv")


def check_format(form: str) -> None:
    """Refuse an unknown format before any work is done."""
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)


def show_tables(layouts: Iterable[Layout], form: str, numbers: str) -> None:
    """Print tables on standard output, or, as CSV, the numbers behind them."""
    from fenchel.report.layout import to_latex, to_markdown

    if form == "csv":
        print(numbers, end="")
        return
    for place, layout in enumerate(layouts):
        if place:
            print()
        if form == "terminal":
            _show_in_terminal(layout)
        else:
            print(to_latex(layout) if form == "latex" else to_markdown(layout), end="")


def _show_in_terminal(layout: Layout) -> None:
    """What goes to a file or a pipe is never cut to a width."""
    from fenchel.report.layout import to_terminal

    table = to_terminal(layout)
    if out.is_terminal:
        out.print(table)
        return
    options = out.options.update(max_width=WIDEST)
    width = measure_renderables(out, options, [table]).maximum
    Console(file=out.file, width=width).print(table)
