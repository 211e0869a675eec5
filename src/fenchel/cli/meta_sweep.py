"""`fenchel meta sweep`: learn and fit an objective for every setting of the appendix's grid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fenchel.cli.console import EXIT_FAILURES, err, print_json, print_table
from fenchel.cli.devices import pick_device

if TYPE_CHECKING:
    from fenchel.train.meta.grid import Entry

ROWS_NAME = "sweep.json"


def sweep(
    sources: Annotated[
        Path, typer.Option(help="Folder below which the runs of `fenchel train` lie.")
    ] = Path("runs"),
    preset: Annotated[str, typer.Option(help="appendix.")] = "appendix",
    group: Annotated[
        list[str] | None,
        typer.Option(
            help="noise, severity, data-and-architecture, losses, squared or digits; repeatable."
        ),
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Repeatable. Default: 0.")] = None,
    epochs: Annotated[int, typer.Option()] = 100,
    batches: Annotated[int, typer.Option(help="In an epoch.")] = 50,
    batch_size: Annotated[int, typer.Option()] = 200,
    every: Annotated[int, typer.Option(help="Batches from one update to the next.")] = 5,
    learning_rate: Annotated[float, typer.Option(help="Of the objective's Adam.")] = 1e-3,
    optimizer: Annotated[str, typer.Option(help="Of the adaptation: sgd or adam.")] = "sgd",
    inner_learning_rate: Annotated[float, typer.Option(help="Of the adaptation.")] = 1e-3,
    limit: Annotated[int | None, typer.Option(help="At most so many images to learn on.")] = None,
    folder: Annotated[Path, typer.Option("--out", help="A folder an entry goes below it.")] = Path(
        "runs/meta-sweep"
    ),
    root: Annotated[Path | None, typer.Option(help="Folder of the data.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the entries and their sources only.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Vary noise, severity, data, architecture, losses and digits, and say what each learned.

    Entries whose source has not been trained are named, with the command that trains it, and the
    others run; the same command again continues. Exit code 1 if any was left out.

    [bold]Example[/bold]

        fenchel meta sweep --sources runs --group losses --seed 0 --seed 1 --seed 2
    """
    from fenchel.api import OPTIMIZERS
    from fenchel.names import unknown
    from fenchel.train.meta import Recipe
    from fenchel.train.meta.grid import entries_of, find_source, study

    if optimizer not in OPTIMIZERS:
        raise unknown("optimizer", optimizer, OPTIMIZERS)
    found = [
        (entry, find_source(sources, entry.source)) for entry in entries_of(preset, group or ())
    ]
    if dry_run:
        _show_plan(found, as_json)
        return
    place = pick_device(device)
    rows: list[dict[str, Any]] = []
    for entry, checkpoint in found:
        if checkpoint is None:
            _tell(f"left out: {entry.name} needs `{entry.source.command}` below {sources}")
            continue
        for one in seed or [0]:
            _tell(f"{entry.name}, seed {one}")
            recipe = Recipe(
                optimizer=OPTIMIZERS[optimizer](learning_rate=inner_learning_rate),
                epochs=epochs,
                batches=batches,
                batch_size=batch_size,
                every=every,
                learning_rate=learning_rate,
                seed=one,
            )
            where = folder / f"{entry.name}-seed{one}"
            rows.append(
                study(entry, checkpoint, recipe, where, limit=limit, root=root, device=place)
            )
    _conclude(rows, folder, as_json)
    if any(checkpoint is None for _, checkpoint in found):
        raise typer.Exit(EXIT_FAILURES)


def _tell(text: str) -> None:
    err.print(escape(text), soft_wrap=True, highlight=False)


def _show_plan(found: list[tuple[Entry, Path | None]], as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "name": entry.name,
                    "group": entry.group,
                    "data": entry.data,
                    "corruptions": list(entry.corruptions),
                    "severity": entry.severity,
                    "task_loss": entry.task_loss,
                    "source": None if path is None else str(path),
                    "train": entry.source.command,
                }
                for entry, path in found
            ]
        )
        return
    table = Table("entry", "group", "source", box=None, pad_edge=False)
    for entry, path in found:
        table.add_row(entry.name, entry.group, escape(str(path or entry.source.command)))
    print_table(table)


def _conclude(rows: list[dict[str, Any]], folder: Path, as_json: bool) -> None:
    from fenchel.models.files import write_atomically

    if rows:
        write_atomically(folder / ROWS_NAME, (json.dumps(rows, indent=2) + "\n").encode())
    if as_json:
        print_json(rows)
        return
    headings = ("entry", "seed", "source", "task", "R² entropy", "R² quadratic", "better")
    table = Table(*headings, box=None, pad_edge=False)
    for row in rows:
        table.add_row(
            row["name"],
            str(row["seed"]),
            row["source"],
            row["task"],
            f"{row['entropy_r_squared']:.3f}",
            f"{row['quadratic_r_squared']:.3f}",
            row["better"],
        )
    print_table(table)
