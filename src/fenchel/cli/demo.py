"""`fenchel demo`: the main job on data that come with the installation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fenchel.cli.console import err, out, print_json

if TYPE_CHECKING:
    from fenchel.report.tables import ErrorTable


def demo(
    out_folder: Annotated[Path, typer.Option("--out", help="Where the page goes.")] = Path(
        "fenchel-demo"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="How many times to repeat it.")] = 3,
    json: Annotated[bool, typer.Option("--json", help="Print the errors as JSON.")] = False,
) -> None:
    """Train a small network on real digits, shift them, adapt with every method, show the result.

    [bold]Examples[/bold]

        fenchel demo

        fenchel demo --seeds 5 --out /tmp/demo
    """
    from fenchel.demo import run, write_page
    from fenchel.demo.page import table_of, verdict

    err.print(
        "training a network with PolyLoss on the digits inside scikit-learn, then adapting it to shifts "
        "with every method",
        highlight=False,
    )
    outcome = run(out_folder / "sources", seeds=range(seeds))
    page = write_page(outcome, out_folder)
    table = table_of(outcome)
    if json:
        errors = {f"{method}/{shift}": values for (method, shift), values in outcome.errors.items()}
        print_json(
            {
                "errors": errors,
                "clean_errors": outcome.clean_errors,
                "protocol": outcome.protocol(),
                "seconds": round(outcome.seconds, 1),
                "page": str(page),
            }
        )
        return
    out.print(_rich(table, len(outcome.seeds)))
    out.print(verdict(outcome), highlight=False)
    out.print(
        f"done in {outcome.seconds:.0f} s; the page with curves and images: {page}", highlight=False
    )


def _rich(table: ErrorTable, seeds: int) -> Table:
    shown = Table(
        title=f"error in %, mean ± standard deviation over {seeds} seeds, lowest in bold",
        title_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        header_style="bold underline",
    )
    shown.add_column("method", no_wrap=True)
    for heading in table.headings:
        shown.add_column(heading.replace("_", "\n"), justify="right", no_wrap=True)
    best = table.best()
    for name in table.rows:
        cells = zip(table.row(name), best, strict=True)
        texts = (f"[bold]{cell}[/bold]" if name == winner else str(cell) for cell, winner in cells)
        shown.add_row(name, *texts, style="red" if name == "conjugate" else None)
    return shown
