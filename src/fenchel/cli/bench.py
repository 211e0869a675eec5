"""`fenchel bench`: run a sweep; look into its store, export it, import into it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from fenchel.cli import completion
from fenchel.cli.console import EXIT_FAILURES, err, out, pick_device, print_json
from fenchel.cli.model_options import (
    DimOption,
    LogitsOption,
    ModelOption,
    ParametersOption,
    TrainedWithOption,
    WeightsOption,
    asked_sweep,
    tell_caution,
)
from fenchel.names import unknown

if TYPE_CHECKING:
    from fenchel.bench.driver import Summary
    from fenchel.bench.plan import Plan

STORE_SUFFIX = ".sqlite"
RUN = "run"


class SweepByDefault(TyperGroup):
    """`fenchel bench SWEEP.toml` is short for `fenchel bench run SWEEP.toml`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name of the default command before whatever is no command."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [RUN, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=SweepByDefault,
    help="Run a sweep: [bold]fenchel bench SWEEP.toml[/bold]. Or look into its store.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Sweep = Annotated[Path, typer.Argument(metavar="SWEEP.toml", help="See docs/benchmark.md.")]
StoreArgument = Annotated[
    Path, typer.Argument(metavar="STORE", help="A store, or the sweep beside which it lies.")
]
StoreOption = Annotated[
    Path | None,
    typer.Option("--store", help="Where results go; by default beside the sweep."),
]
Workers = Annotated[int | None, typer.Option("--workers", "-w", help="Cells at a time (1).", min=1)]
ExecutorName = Annotated[
    str | None,
    typer.Option(
        "--executor",
        "-x",
        autocompletion=completion.executors,
        help="serial, processes or ray. By default serial, or processes for several workers.",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option("--ray-address", help="Of a Ray cluster; without it Ray is started here."),
]
Limit = Annotated[
    int | None, typer.Option("--limit", help="Images of each shift; by default all.", min=1)
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Count the cells, estimate the time, run nothing.")
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Run cells again that failed before.")
]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, mps or auto.")]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@app.command(RUN)
def run(
    sweep: Sweep,
    model: ModelOption = None,
    weights: WeightsOption = None,
    trained_with: TrainedWithOption = None,
    logits: LogitsOption = None,
    dim: DimOption = None,
    parameters: ParametersOption = None,
    workers: Workers = None,
    executor: ExecutorName = None,
    ray_address: RayAddress = None,
    limit: Limit = None,
    store: StoreOption = None,
    dry_run: DryRun = False,
    retry_failed: RetryFailed = False,
    device: Device = "cpu",
    json: AsJson = False,
) -> None:
    """Run the cells of a sweep that have no result yet. Exit code 1 if a cell of it failed.

    --model takes the place of the sweep's own models.

    [bold]Examples[/bold]

        fenchel bench sweep.toml --workers 2

        fenchel bench sweep.toml --model my_net.py:build --weights net.pt --trained-with poly:epsilon=6

        fenchel bench sweep.toml --dry-run
    """
    from fenchel.bench.plan import make_plan

    _check_executor(executor)
    asked = asked_sweep(
        sweep,
        model=model,
        weights=weights,
        trained_with=trained_with,
        logits=logits,
        dim=dim,
        parameters=parameters,
    )
    plan = make_plan(asked, limit=limit, device=pick_device(device))
    for caution in plan.cautions:
        tell_caution(caution)
    path = store or store_beside(sweep)
    if dry_run:
        tell_estimate(plan, path, workers or 1, json)
        return
    summary = run_in_store(plan, path, executor, workers, ray_address, retry_failed)
    tell_summary(summary, path, json)
    if summary.failed:
        raise typer.Exit(EXIT_FAILURES)


def store_beside(sweep: Path) -> Path:
    """The store of a sweep: the same name, another ending."""
    return sweep.with_suffix(STORE_SUFFIX)


def run_in_store(
    plan: Plan,
    path: Path,
    executor: str | None,
    workers: int | None,
    ray_address: str | None,
    retry_failed: bool = False,
) -> Summary:
    """Run a plan, showing how it goes on standard error."""
    from fenchel.bench.driver import run_plan
    from fenchel.bench.executors import make_executor
    from fenchel.bench.store import Store
    from fenchel.bench.watching import make_watcher

    with (
        Store(path) as store,
        make_executor(executor, workers, ray_address) as running,
        make_watcher() as watcher,
    ):
        return run_plan(plan, store, running, watcher, retry_failed=retry_failed)


def tell_estimate(plan: Plan, path: Path, workers: int, json: bool) -> None:
    """What `--dry-run` answers."""
    from fenchel.bench.estimate import estimate
    from fenchel.bench.store import Store
    from fenchel.bench.watching import duration

    records = []
    if path.exists():
        with Store.open_readonly(path) as store:
            records = list(store.records())
    found = estimate(plan, records, workers)
    if json:
        facts = {"cells": found.cells, "done": found.done, "failed": found.failed}
        print_json({**facts, "to_run": found.to_run, "seconds": round(found.seconds, 3)})
        return
    _say(f"{found.cells} cells: {found.done} done, {found.failed} failed, {found.to_run} to run")
    if found.to_run:
        basis = (
            f"{found.measured_kinds} kinds of cells from records, {found.calibrated_kinds} tried"
        )
        plural = "" if workers == 1 else "s"
        _say(f"about {duration(found.seconds)} on {workers} worker{plural} ({basis})")


def tell_summary(summary: Summary, path: Path, json: bool) -> None:
    """How a sweep stands after a run."""
    from fenchel.bench.watching import duration

    if json:
        facts = {"cells": summary.planned, "done": summary.done, "failed": summary.failed}
        print_json({**facts, "ran": summary.ran, "seconds": summary.seconds, "store": str(path)})
        return
    _say(
        f"{summary.planned} cells: {summary.done} done, {summary.failed} failed; "
        f"{summary.ran} run now in {duration(summary.seconds)}"
    )
    _say(f"store: {path}")
    if summary.failed:
        _say("the errors: 'fenchel bench status'; once more: '--retry-failed'")


@app.command()
def status(store: StoreArgument, json: AsJson = False) -> None:
    """How far a sweep is, and what failed.

    [bold]Example[/bold]

        fenchel bench status sweep.toml
    """
    with _existing(store) as opened:
        counts = opened.counts()
        failures = [record for record in opened.records() if record.status == "failed"]
    if json:
        facts = {name: getattr(counts, name) for name in ("planned", "done", "failed", "running")}
        errors = [{"key": record.key, "error": record.error} for record in failures]
        print_json({**facts, "pending": counts.pending, "failures": errors})
        return
    from fenchel.bench.watching import cell_title

    _say(
        f"{counts.planned} cells: {counts.done} done, {counts.failed} failed, "
        f"{counts.running} running, {counts.pending} pending"
    )
    for record in failures:
        _say(Text(f"failed: {cell_title(record)}: {record.error}", "red"))


@app.command()
def export(
    store: StoreArgument,
    out_file: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="A file, .gz for a compressed one; by default standard output."
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--format", "-f", help="csv or json; by default by the file's name."),
    ] = None,
    timings: Annotated[
        bool, typer.Option("--timings", help="Also what was measured: times, memory, tracebacks.")
    ] = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the results as JSON; with --out, what was written where."
        ),
    ] = False,
) -> None:
    """Write every result as CSV or JSON: sorted, and the same for the same results.

    [bold]Examples[/bold]

        fenchel bench export sweep.sqlite --out results.csv.gz

        fenchel bench export sweep.toml --format json --timings
    """
    from fenchel.bench.exports import FORMATS, as_csv, as_json, packed
    from fenchel.files import write_atomically

    kind = kind or _export_format(out_file, json)
    if kind not in FORMATS:
        raise unknown("format", kind, FORMATS)
    if json and out_file is None and kind != "json":
        raise ValueError(f"--json prints JSON; got --format {kind} as well. Leave one of them out.")
    with _existing(store) as opened:
        text = (as_json if kind == "json" else as_csv)(opened, timings=timings)
        results = sum(1 for _ in opened.records())
    if out_file is None:
        typer.echo(text, nl=False)
        return
    write_atomically(out_file, packed(text, out_file))
    if json:
        print_json({"file": str(out_file), "format": kind, "results": results})
    else:
        err.print(Text(f"written: {out_file}"), soft_wrap=True)


def _export_format(file: Path | None, json: bool) -> str:
    """The format of an export whose user named none."""
    if file is None:
        return "json" if json else "csv"
    return "json" if Path(file.name.removesuffix(".gz")).suffix == ".json" else "csv"


@app.command("import")
def import_(
    store: Annotated[
        Path, typer.Argument(metavar="STORE", help="A store (made if need be), or its sweep.")
    ],
    export_file: Annotated[
        Path, typer.Argument(metavar="EXPORT", help="A file written by 'fenchel bench export'.")
    ],
    json: AsJson = False,
) -> None:
    """Add the results of an export to a store, which then continues from there.

    [bold]Example[/bold]

        fenchel bench import sweep.sqlite results.json
    """
    from fenchel.bench.exports import import_file
    from fenchel.bench.store import Store

    path = _store_of(store)
    with Store(path) as opened:
        new, known = import_file(opened, export_file)
    if json:
        print_json({"store": str(path), "imported": new, "known": known})
        return
    _say(f"{new} results imported, {known} were there already")


def _existing(path: Path) -> Any:
    from fenchel.bench.store import Store

    return Store.open_readonly(_store_of(path))


def _store_of(path: Path) -> Path:
    return store_beside(path) if path.suffix == ".toml" else path


def _check_executor(name: str | None) -> None:
    """An unknown executor stops the call before data and models are opened."""
    from fenchel.bench.executors import EXECUTORS

    if name is not None:
        EXECUTORS[name]


def _say(text: str | Text) -> None:
    out.print(text if isinstance(text, Text) else Text(text), soft_wrap=True)
