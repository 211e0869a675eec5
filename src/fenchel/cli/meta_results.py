"""What the verbs of `fenchel meta` share: scores under the protocol of the learning, and a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fenchel.cli.console import out, print_json, print_table

if TYPE_CHECKING:
    from fenchel.models import Checkpoint
    from fenchel.objectives import LearnedObjective
    from fenchel.train.meta import Target

RootOption = Annotated[
    Path | None, typer.Option(help="Folder of the data; by default that of `data fetch`.")
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]


def scored(
    learned: LearnedObjective,
    others: dict[str, Any],
    source: Checkpoint,
    target: Target,
    device: str,
    file: Path,
) -> dict[str, dict[str, float]]:
    """Errors on the score images, by objective and shift, under the protocol of the learning."""
    from fenchel.api import OPTIMIZERS
    from fenchel.train.meta import Scoring, baselines, score

    recipe = learned.protocol["recipe"]
    inner = {k.removeprefix("inner_"): v for k, v in recipe.items() if k.startswith("inner_")}
    scoring = Scoring(
        source=source,
        shifts=target.score_shifts(),
        optimizer=OPTIMIZERS[recipe["optimizer"]](**inner),
        batch_size=recipe["batch_size"],
        seed=recipe["seed"],
        device=device,
    )
    return score(scoring, {**baselines(source), "learned": learned, **others}, file)


def conclude(facts: dict[str, Any], errors: dict[str, dict[str, float]], as_json: bool) -> None:
    """Print the errors as a table and where the files lie, or everything as JSON."""
    from fenchel.train.meta import means

    if as_json:
        print_json({**facts, "errors": errors, "mean_errors": means(errors)})
        return
    if errors:
        table = Table(title="online error (%)", title_justify="left", box=None, pad_edge=False)
        for heading in ("shift", *errors):
            table.add_column(heading, justify="left" if heading == "shift" else "right")
        for shift in next(iter(errors.values())):
            table.add_row(shift, *(f"{by[shift]:.2f}" for by in errors.values()))
        table.add_row("mean", *(f"{value:.2f}" for value in means(errors).values()), style="bold")
        print_table(table)
    for name in ("objective", "fit"):
        if name in facts:
            out.print(f"{name}: {escape(facts[name])}", soft_wrap=True, highlight=False)
