"""`fenchel report`: a results store as tables, figures and one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fenchel.cli import completion
from fenchel.cli.console import (
    FORMATS,
    JSON,
    check_format,
    csv_rows,
    err,
    print_json,
    show_tables,
)


def report(
    store: Annotated[Path, typer.Argument(help="The results store of `fenchel bench`.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path(
        "report.html"
    ),
    figures: Annotated[
        Path | None,
        typer.Option(help="Folder for figures (PNG, SVG, PDF) and tables (LaTeX, Markdown, CSV)."),
    ] = None,
    reference: Annotated[
        str,
        typer.Option(
            autocompletion=completion.method_names,
            help="The method that the others are tested against.",
        ),
    ] = "conjugate",
    table_format: Annotated[
        str, typer.Option("--format", help=f"Of the tables printed: {', '.join(FORMATS)}.")
    ] = "terminal",
    json: Annotated[
        bool, typer.Option("--json", help="Print the numbers as JSON instead of tables.")
    ] = False,
) -> None:
    """Show a results store: tables here, and one self-contained page with figures and protocol.

    [bold]Examples[/bold]

        fenchel report sweep.sqlite --out report.html

        fenchel report sweep.sqlite --figures paper/figures --format latex
    """
    from fenchel.adapters import METHODS
    from fenchel.report.listings import errors_csv, significance_csv
    from fenchel.report.page import tables_of, write_figures, write_report
    from fenchel.report.results import read_results

    check_format(table_format)
    METHODS[reference]
    results = read_results(store)
    tables = (
        layout for section in results.sections for layout in tables_of(section, reference).values()
    )
    show_tables(tables, JSON if json else table_format, errors_csv(results))
    page = write_report(results, out, reference=reference)
    written: list[Path] = []
    if figures is not None:
        written = write_figures(results, figures, reference=reference)
        err.print(f"{len(written)} files in {figures}", highlight=False, soft_wrap=True)
    err.print(f"page: {page}", highlight=False, soft_wrap=True)
    if json:
        print_json(
            {
                "errors": csv_rows(errors_csv(results)),
                "differences": csv_rows(significance_csv(results, reference)),
                "page": str(page),
                "files": [str(file) for file in written],
            }
        )
