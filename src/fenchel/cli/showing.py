"""`--format`: how a command prints its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.measure import measure_renderables

from fenchel.cli.console import out
from fenchel.names import unknown

if TYPE_CHECKING:
    from fenchel.report.layout import Layout

WIDEST = 10_000
FORMATS = ("terminal", "markdown", "latex", "csv")


def check_format(form: str) -> None:
    """Refuse an unknown format before any work is done."""
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)


def show_table(layout: Layout, form: str) -> None:
    """Print a table on standard output; one that goes to a file is never cut to a width."""
    from fenchel.report.layout import as_text, to_terminal

    if form != "terminal":
        print(as_text(layout, form))
        return
    table = to_terminal(layout)
    if out.is_terminal:
        out.print(table)
        return
    options = out.options.update(max_width=WIDEST)
    width = measure_renderables(out, options, [table]).maximum
    Console(file=out.file, width=width).print(table)
