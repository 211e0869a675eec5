"""`fenchel reproduce`: a table or figure of the paper, ours beside the published numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from fenchel.cli import completion
from fenchel.cli.console import (
    EXIT_FAILURES,
    FORMATS,
    JSON,
    check_format,
    csv_rows,
    err,
    note,
    out,
    pick_device,
    print_json,
    show_tables,
    tell,
)
from fenchel.cli.result_files import save_figure, slug, write_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fenchel.bench.plan import Plan
    from fenchel.bench.record import Record
    from fenchel.paper.comparison import Comparison
    from fenchel.paper.planning import FoundCheckpoint, PresetPlan


LIST = "list"

HOME = Path("reproduce")


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            autocompletion=completion.paper_presets,
            help="A table or figure, or `list` for their names.",
        ),
    ],
    scale: Annotated[
        str,
        typer.Option(
            autocompletion=completion.scales,
            help="`full`, `cpu` or `smoke`: how much is run, with which settings.",
        ),
    ] = "cpu",
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the results (reproduce/NAME).")
    ] = None,
    checkpoints: Annotated[
        list[Path] | None,
        typer.Option(
            "--checkpoints",
            help="Source models: folders, files, zoo:NAME or pretrained:NAME (the zoo, what was fetched, "
            "then `runs`, here and in the cache).",
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(help="Of the results; tables share cells (reproduce/results.sqlite)."),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes at a time.")] = None,
    executor: Annotated[
        str | None,
        typer.Option(autocompletion=completion.executors, help="serial, processes or ray."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    table_format: Annotated[
        str, typer.Option("--format", help=f"Of the table printed: {', '.join(FORMATS)}.")
    ] = "terminal",
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run cells again that failed before.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be run and what is missing.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the numbers as JSON instead of a table.")
    ] = False,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            autocompletion=completion.hostile_columns,
            help="For `hostile`: run this column alone. Repeat for several.",
        ),
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            "--row",
            autocompletion=completion.hostile_rows,
            help="For `hostile`: run this row alone. Repeat for several.",
        ),
    ] = None,
) -> None:
    """Run a table or figure of the paper, on the models and data at hand.

    Hyper-parameters are the published ones; at scale `cpu`, those tuned for the networks of the zoo.
    What is missing is named, with the command that gets it. The same command again continues.

    [bold]Examples[/bold]

        fenchel reproduce list

        fenchel reproduce fig-gaussian

        fenchel reproduce table-poly --scale cpu --workers 2

        fenchel reproduce table-poly --scale smoke --checkpoints runs

        fenchel reproduce hostile --column source --column bn --column default
    """
    from fenchel.cli.reproduce_gaussians import DRAWN, reproduce_gaussians
    from fenchel.cli.reproduce_hostile import conclude_hostile, planned_hostile, require_hostile
    from fenchel.cli.reproduce_learned import reproduce_learned
    from fenchel.names import unknown
    from fenchel.paper import PRESETS, SCALES
    from fenchel.paper.comparison import compare
    from fenchel.paper.planning import plan_preset

    if name == LIST:
        _list(as_json)
        return
    preset = PRESETS[name]
    check_format(table_format)
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    form = JSON if as_json else table_format
    where = folder or HOME / name
    # Hostile streams are published by themselves, so their cells are kept by themselves.
    stem = name if preset.figure == "hostile" else "results"
    results = store or (folder or HOME) / f"{stem}.sqlite"
    hostile = None
    if columns or rows:
        require_hostile(preset)
    if preset.figure in DRAWN:
        facts = reproduce_gaussians(preset, scale, where, form, dry_run)
        if as_json:
            print_json(facts)
        return
    found = _found(checkpoints)
    if preset.figure == "hostile":
        hostile = planned_hostile(preset, scale, found, pick_device(device))
        planned, chosen = hostile.whole, hostile.plan(columns or (), rows or ())
    else:
        planned = plan_preset(preset, scale, found, device=pick_device(device))
        chosen = planned.plan
    _tell_plan(planned, chosen)
    failed, facts = 0, {}
    if dry_run:
        tell(err if as_json else out, planned.missing_lines())
    elif preset.figure == "learned":
        facts = reproduce_learned(
            planned, where, form=form, workers=workers, device=pick_device(device)
        )
    else:
        records = _records(chosen, planned.plan, results, workers, executor, retry_failed)
        if hostile is not None:
            facts, drawn = conclude_hostile(hostile, records, where, form), []
        else:
            compared = compare(planned, records)
            drawn = _draw(planned, compared, records, where)
            facts = _show(planned, compared, where, form)
        failed = sum(record.status == "failed" for record in records.values())
        files = [*facts["files"], *map(str, drawn)]
        facts |= {"failed_cells": failed, "store": str(results), "files": files}
    if as_json:
        print_json({**planned.facts(), **facts})
    if failed:
        raise typer.Exit(EXIT_FAILURES)


def _list(as_json: bool) -> None:
    from fenchel.paper import PRESETS

    if as_json:
        print_json([{"name": name, "about": preset.about} for name, preset in PRESETS.items()])
        return
    if not out.is_terminal:
        print("\n".join(PRESETS))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("name", style="cyan", no_wrap=True)
    table.add_column("about")
    for name, preset in PRESETS.items():
        table.add_row(name, preset.about)
    out.print(table)


def _found(checkpoints: Sequence[Path] | None) -> tuple[FoundCheckpoint, ...]:
    """The checkpoints in the places given, or in the usual ones."""
    from fenchel.fetching.home import home
    from fenchel.models import zoo
    from fenchel.models.pretrained import registry as pretrained
    from fenchel.paper.planning import find_checkpoints

    usual = (zoo.folder(), pretrained.folder(), Path("runs"), home() / "runs")
    return find_checkpoints(checkpoints or [place for place in usual if place.is_dir()])


def _tell_plan(planned: PresetPlan, chosen: Plan) -> None:
    """What is run, at which scale, with which models; on standard error."""
    note(f"{planned.preset.name}: {planned.preset.about}")
    scales = dict.fromkeys(f"{line.scale}" for line in planned.lines)
    note(f"scale {planned.scale}: {' / '.join(scales)}; {len(chosen.jobs)} cells in the sweep")
    models = dict.fromkeys(
        f"source: {line.checkpoint.path} ({line.checkpoint.metadata.architecture}, "
        f"{line.checkpoint.metadata.loss})"
        for line in planned.lines
        if line.checkpoint
    )
    for text in models:
        note(text)


def _records(
    plan: Plan,
    whole: Plan,
    path: Path,
    workers: int | None,
    executor: str | None,
    retry_failed: bool,
) -> dict[str, Record]:
    """Run what has no result yet; the records of the whole plan, of which it may be a part, by key."""
    from fenchel.bench.driver import run_plan
    from fenchel.bench.executors import make_executor
    from fenchel.bench.store import Store
    from fenchel.bench.watching import make_watcher

    if not plan.jobs:
        return {}
    with Store(path) as store:
        with make_executor(executor, workers) as pool, make_watcher() as watcher:
            run_plan(plan, store, pool, watcher, retry_failed=retry_failed)
        return {record.key: record for record in store.records(set(whole.keys))}


def _show(
    planned: PresetPlan, rows: Sequence[Comparison], where: Path, form: str
) -> dict[str, Any]:
    """Print ours beside the paper's and write them as CSV; the same as plain values."""
    from fenchel.paper.comparison_tables import comparison_csv, comparison_table, shifts_csv
    from fenchel.paper.pairing import differences

    paired = differences(rows)
    numbers = comparison_csv(rows, paired)
    caption = f"error in % at scale {planned.scale} beside the paper's; lowest of ours in bold"
    show_tables([comparison_table(rows, caption, paired)], form, numbers)
    # Beside a table for people the rest is output as well; after LaTeX or CSV it would be in the way.
    remarks = _remarks(planned, rows)
    tell(out if form == "terminal" else err, [*remarks, *planned.missing_lines()])
    stem = where / planned.preset.name
    by_shift = stem.with_name(f"{stem.name}-shifts.csv")
    files = write_files({stem.with_suffix(".csv"): numbers, by_shift: shifts_csv(rows)})
    note(f"results: {where}")
    return {"rows": csv_rows(numbers), "remarks": remarks, "files": [str(file) for file in files]}


def _remarks(planned: PresetPlan, rows: Sequence[Comparison]) -> list[str]:
    """What a reader of the table has to know."""
    from fenchel.report.several import LEVEL, MARK

    remarks = [f"note: {note}" for note in planned.preset.notes]
    remarks.append(
        f"{MARK} told apart over streams, and over images with p < {LEVEL:g} after Holm's correction"
    )
    if any(row.is_partial and row.errors for row in rows):
        remarks.append("* a mean over the shifts that are here; the paper's is over all of them")
    absent = sum(not row.errors for row in rows)
    if absent:
        remarks.append(f"{absent} of {len(rows)} numbers are missing; below is how to get them")
    if planned.scale != "full" and absent < len(rows):
        remarks.append(
            f"scale {planned.scale} runs a part of the experiment: --scale full is the paper's"
        )
    return remarks


def _draw(
    planned: PresetPlan, rows: Sequence[Comparison], records: Mapping[str, Record], where: Path
) -> list[Path]:
    """Draw the figures of a preset; the files are returned."""
    from fenchel.paper.comparison import task_loss_curves
    from fenchel.paper.comparison_tables import severity_figures, shifts_figures
    from fenchel.report.curves import curves_csv, task_loss_figure

    figure, files = None, []
    if planned.preset.figure == "severity":
        for number, (data, drawn) in enumerate(severity_figures(rows).items()):
            suffix = f"-{slug(data)}" if number else ""
            files += save_figure(drawn, where / f"{planned.preset.name}{suffix}")
    elif planned.preset.figure == "task-loss":
        (line,) = planned.lines
        title = f"{line.line.title}, mean of {line.shifts} shifts"
        curves = {(method, title): c for method, c in task_loss_curves(line, records).items()}
        figure = task_loss_figure(curves, list(line.line.runs), [title]) if curves else None
        files += write_files({where / f"{planned.preset.name}-curves.csv": curves_csv(curves)})
    elif planned.preset.figure is None:
        for title, drawn in shifts_figures(rows).items():
            files += save_figure(drawn, where / f"{planned.preset.name}-{slug(title)}")
    if figure is not None:
        files += save_figure(figure, where / planned.preset.name)
    return files
