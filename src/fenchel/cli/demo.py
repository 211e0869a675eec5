"""`fenchel demo`: the main job on data that come with the installation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fenchel.cli.console import err, out, print_json


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
    from fenchel.report.layout import to_terminal

    err.print(
        "training a network with PolyLoss on the digits inside scikit-learn, then adapting it to shifts "
        "with every method",
        highlight=False,
    )
    outcome = run(out_folder / "sources", seeds=range(seeds))
    page = write_page(outcome, out_folder)
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
    caption = (
        f"error in %, mean ± standard deviation over {len(outcome.seeds)} seeds, lowest in bold"
    )
    out.print(to_terminal(table_of(outcome).layout(caption)))
    out.print(verdict(outcome), highlight=False)
    out.print(
        f"done in {outcome.seconds:.0f} s; the page with curves and images: {page}", highlight=False
    )
