"""`fenchel tune`: choose hyper-parameters on the validation corruptions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fenchel.cli.bench import (
    AsJson,
    Device,
    DryRun,
    ExecutorName,
    Limit,
    RayAddress,
    Sweep,
    Workers,
    run_in_store,
    tell_estimate,
)
from fenchel.cli.console import EXIT_FAILURES, out, pick_device, print_json, print_table
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

if TYPE_CHECKING:
    from fenchel.bench.plan import Plan, Request
    from fenchel.bench.record import Record
    from fenchel.bench.selection import Grid
    from fenchel.bench.tuned import Choice


def tune(
    sweep: Sweep,
    model: ModelOption = None,
    weights: WeightsOption = None,
    trained_with: TrainedWithOption = None,
    logits: LogitsOption = None,
    dim: DimOption = None,
    parameters: ParametersOption = None,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file to write; by default SWEEP-tuned.json."),
    ] = None,
    learning_rate: Annotated[
        list[float] | None,
        typer.Option("--learning-rate", help="Repeat for several. Default: 1e-1 to 1e-4."),
    ] = None,
    temperature: Annotated[
        list[float] | None,
        typer.Option("--temperature", help="Repeat for several. Default: 1 to 5."),
    ] = None,
    optimizer: Annotated[
        list[str] | None, typer.Option("--optimizer", help="Repeat for several. Default: both.")
    ] = None,
    workers: Workers = None,
    executor: ExecutorName = None,
    ray_address: RayAddress = None,
    limit: Limit = None,
    final_limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Then run the best of every learning rate again on so many images, and choose among them.",
        ),
    ] = None,
    store: Annotated[
        Path | None, typer.Option("--store", help="Of the trials; by default beside the file.")
    ] = None,
    dry_run: DryRun = False,
    device: Device = "cpu",
    json: AsJson = False,
) -> None:
    """Try a grid for every method of a sweep on the four validation corruptions; keep the best.

    The same budget for every method. The sweep's own corruptions are never opened. Use the file in
    a sweep: tuned = "SWEEP-tuned.json" in a method. Short streams favour rates that break down in long
    ones: with --limit, give the length of the real stream as --final-limit.

    [bold]Examples[/bold]

        fenchel tune sweep.toml --workers 2

        fenchel tune sweep.toml --optimizer sgd --limit 2000 --final-limit 5000

        fenchel tune sweep.toml --model my_net.py:build --weights net.pt --trained-with poly:epsilon=6
    """
    from fenchel.bench.selection import Grid, final_plan, select, tuning_plan

    given = {"learning_rate": learning_rate, "temperature": temperature, "optimizer": optimizer}
    grid = Grid(**{name: tuple(values) for name, values in given.items() if values})  # type: ignore[arg-type]
    target = out_file or sweep.with_name(f"{sweep.stem}-tuned.json")
    path = store or target.with_suffix(".sqlite")
    on = pick_device(device)
    asked_for = asked_sweep(
        sweep,
        model=model,
        weights=weights,
        trained_with=trained_with,
        logits=logits,
        dim=dim,
        parameters=parameters,
    )
    plan = tuning_plan(asked_for, grid, limit=limit, device=on)
    for caution in plan.cautions:
        tell_caution(caution)
    longer = None
    if final_limit is not None:
        longer = tuning_plan(asked_for, grid, limit=final_limit, device=on)
    if dry_run:
        whole = plan if longer is None else _with_finalists(plan, longer, path, grid)
        tell_estimate(whole, path, workers or 1, json)
        return
    summary = run_in_store(plan, path, executor, workers, ray_address)
    failed = summary.failed
    if longer is not None:
        plan = final_plan(longer, *_trials(plan, path), grid)
        failed += run_in_store(plan, path, executor, workers, ray_address).failed
    screened_on = limit if final_limit is not None else None
    tuned = select(*_trials(plan, path), grid, screened_on=screened_on)
    tuned.write(target)
    if json:
        choices = [_facts(choice) for choice in tuned.choices]
        print_json({"file": str(target), "store": str(path), "failed": failed, "choices": choices})
    else:
        table = Table("source", "method", *grid.settings(), "error %", "trials", box=None)
        for choice in tuned.choices:
            source = f"{choice.architecture}, {choice.loss}"
            values = [str(value) for value in choice.settings.values()]
            error = f"{choice.validation_error:.2f}"
            table.add_row(source, choice.method, *values, error, str(choice.trials))
        print_table(table)
        out.print(Text(f"written: {target}"), soft_wrap=True)
    if failed:
        raise typer.Exit(EXIT_FAILURES)


def _facts(choice: Choice) -> dict[str, Any]:
    """A row of the table as plain values."""
    return {
        "architecture": choice.architecture,
        "loss": choice.loss,
        "method": choice.method,
        **choice.settings,
        "error_percent": choice.validation_error,
        "trials": choice.trials,
    }


def _with_finalists(plan: Plan, longer: Plan, path: Path, grid: Grid) -> Plan:
    """Both stages; before the first is done, any trial of a rate stands in for its best."""
    from fenchel.bench.plan import Plan
    from fenchel.bench.selection import final_plan, one_of_each_rate

    records, names = _trials(plan, path) if path.exists() else ([], {})
    if len(records) == len(plan.keys):
        finalists = final_plan(longer, records, names, grid)
    else:
        finalists = one_of_each_rate(longer)
    return Plan(plan.jobs + finalists.jobs, plan.requests + finalists.requests)


def _trials(plan: Plan, path: Path) -> tuple[list[Record], dict[str, list[Request]]]:
    """The records of a plan, and the names its cells were asked by."""
    from fenchel.bench.store import Store

    names: dict[str, list[Request]] = {}
    for name in plan.requests:
        names.setdefault(name.key, []).append(name)
    with Store.open_readonly(path) as store:
        return list(store.records(set(plan.keys))), names
