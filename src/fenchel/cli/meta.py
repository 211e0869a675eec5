"""`fenchel meta`: learn the test-time objective itself, once or over a grid, fit it, and draw it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fenchel.cli import completion, meta_fit
from fenchel.cli.console import EXIT_FAILURES, err, pick_device, print_json, print_table
from fenchel.cli.meta_fit import DeviceOption, RootOption, conclude, named, scored
from fenchel.cli.model_options import ModelOption, TrainedWithOption, WeightsOption, one_model

if TYPE_CHECKING:
    from fenchel.models import Checkpoint
    from fenchel.train.meta import Target
    from fenchel.train.meta.grid import GridEntry

SCORES_NAME = "scores.json"

app = typer.Typer(
    help="Learn the test-time objective by differentiating through the adaptation step.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.command("train")
def train(
    data: Annotated[
        str,
        typer.Option(
            autocompletion=completion.datasets,
            help="cifar10-c, or any labelled target: `usps:digits=True`.",
        ),
    ],
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="The source model: a checkpoint of `fenchel train`, or its folder."),
    ] = None,
    model: ModelOption = None,
    weights: WeightsOption = None,
    trained_with: TrainedWithOption = None,
    corruption: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=completion.corruptions,
            help="Learn on this one; repeatable. Default: the four validation ones.",
        ),
    ] = None,
    severity: Annotated[int, typer.Option(min=1, max=5)] = 5,
    score_corruption: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=completion.corruptions,
            help="Score on this one; repeatable. Default: the fifteen test ones.",
        ),
    ] = None,
    task_loss: Annotated[
        str, typer.Option(help="Of the adapted model: cross-entropy, squared or brier.")
    ] = "cross-entropy",
    order: Annotated[
        str, typer.Option(help="first or second; they differ where --unroll is above 1.")
    ] = "first",
    unroll: Annotated[
        int, typer.Option(min=1, help="Batches through which an update differentiates.")
    ] = 1,
    setting: Annotated[
        str, typer.Option(help="reset: one shift after the other; mixed: all shifts in a batch.")
    ] = "reset",
    embedding: Annotated[int, typer.Option(help="16, 32 or 64.")] = 32,
    feed_forward: Annotated[int, typer.Option(help="32, 64 or 128.")] = 64,
    layers: Annotated[int, typer.Option(help="Encoder layers, 1 or 2.")] = 1,
    heads: Annotated[int, typer.Option(help="Of the attention.")] = 4,
    hidden_layers: Annotated[int, typer.Option(help="Of the head, 1 or 2.")] = 1,
    symmetric: Annotated[
        bool, typer.Option("--symmetric", help="Treat all classes alike: no class embedding.")
    ] = False,
    epochs: Annotated[int, typer.Option(help="In each the model starts from the source.")] = 100,
    batches: Annotated[int, typer.Option(help="In an epoch.")] = 50,
    batch_size: Annotated[int, typer.Option()] = 200,
    every: Annotated[int, typer.Option(help="Batches from one update to the next.")] = 5,
    learning_rate: Annotated[float, typer.Option(help="Of the objective's Adam.")] = 1e-3,
    weight_decay: Annotated[float, typer.Option(help="Of the objective's Adam.")] = 0.0,
    schedule: Annotated[str, typer.Option(help="constant or cosine.")] = "constant",
    optimizer: Annotated[str, typer.Option(help="Of the adaptation: sgd or adam.")] = "sgd",
    inner_learning_rate: Annotated[float, typer.Option(min=0.0, help="Of the adaptation.")] = 1e-3,
    learn_images: Annotated[
        str | None,
        typer.Option(metavar="START:STOP", help="Images to learn on. Default: one half."),
    ] = None,
    score_images: Annotated[
        str | None,
        typer.Option(metavar="START:STOP", help="Images to score on. Default: the others."),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many images of each part.")] = None,
    scoring: Annotated[
        bool, typer.Option("--score/--no-score", help="Compare with TENT and the conjugate.")
    ] = True,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    folder: Annotated[
        Path, typer.Option("--out", help="Folder of the run; the same command continues it.")
    ] = Path("runs/meta"),
    root: RootOption = None,
    device: DeviceOption = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads; part of the run.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Learn an objective for a trained model, and score it on images it never saw.

    Kill it at any moment: the same command continues to the bit-identical result.

    [bold]Examples[/bold]

        fenchel meta train --checkpoint runs/ce --data cifar10-c --task-loss cross-entropy --out runs/meta-ce

        fenchel meta train --checkpoint runs/svhn --data usps:digits=True --out runs/meta-usps

        fenchel meta train --model net.py:build --weights net.pt --trained-with poly --data cifar10-c
    """
    import torch

    from fenchel.api import OPTIMIZERS
    from fenchel.names import unknown
    from fenchel.train.meta import MetaRecipe, MetaRun, Target, learn

    if optimizer not in OPTIMIZERS:
        raise unknown("optimizer", optimizer, OPTIMIZERS)
    recipe = MetaRecipe(
        task_loss=task_loss,
        sizes={
            "embedding": embedding,
            "feed_forward": feed_forward,
            "layers": layers,
            "heads": heads,
            "hidden_layers": hidden_layers,
            **({"symmetric": True} if symmetric else {}),
        },
        optimizer=OPTIMIZERS[optimizer](learning_rate=inner_learning_rate),
        epochs=epochs,
        batches=batches,
        batch_size=batch_size,
        every=every,
        unroll=unroll,
        order=order,  # type: ignore[arg-type]
        setting=setting,  # type: ignore[arg-type]
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        schedule=schedule,
        seed=seed,
    )
    source = one_model(checkpoint, model, weights, trained_with)
    target = Target.chosen(
        source,
        data,
        corruption or (),
        score_corruption or (),
        severity=severity,
        learn_images=learn_images,
        score_images=score_images,
        limit=limit,
        root=root,
    )
    source = target.known_to(source)
    if threads is not None:
        torch.set_num_threads(threads)
    run = MetaRun(
        source=source,
        shifts=target.learn_shifts(),
        recipe=recipe,
        out=folder,
        facts={
            "target": target.record(),
            **named(str(checkpoint) if model is None else model, weights, trained_with),
        },
        device=pick_device(device),
    )
    _announce(run.source, target, folder)
    learned = learn(run)
    errors = (
        scored(learned, {}, source, target, run.device, folder / SCORES_NAME) if scoring else {}
    )
    files = {"objective": str(folder / "learned.safetensors")}
    if scoring:
        files["scores"] = str(folder / SCORES_NAME)
    conclude(files, errors, as_json)


def _announce(source: Checkpoint, target: Target, folder: Path) -> None:
    split = target.split
    what = ", ".join(target.corruptions) or "as it is"
    err.print(
        f"learning an objective for {escape(source.metadata.architecture)} trained with "
        f"{escape(source.loss_spec)} on {escape(target.data)} ({what}): {len(split.learn)} images to "
        f"learn on, {len(split.score)} others to score on, in {escape(str(folder))}",
        soft_wrap=True,
        highlight=False,
    )


app.command("fit")(meta_fit.fit)

app.command("plot")(meta_fit.plot)


ROWS_NAME = "sweep.json"


@app.command("sweep")
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
    inner_learning_rate: Annotated[float, typer.Option(min=0.0, help="Of the adaptation.")] = 1e-3,
    limit: Annotated[int | None, typer.Option(help="At most so many images to learn on.")] = None,
    folder: Annotated[
        Path, typer.Option("--out", help="One folder per entry goes below it.")
    ] = Path("runs/meta-sweep"),
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
    from fenchel.train.meta import MetaRecipe
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
            recipe = MetaRecipe(
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
    left_out = [entry.name for entry, checkpoint in found if checkpoint is None]
    _conclude(rows, left_out, folder, as_json)
    if left_out:
        raise typer.Exit(EXIT_FAILURES)


def _tell(text: str) -> None:
    err.print(escape(text), soft_wrap=True, highlight=False)


def _show_plan(found: list[tuple[GridEntry, Path | None]], as_json: bool) -> None:
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


def _conclude(rows: list[dict[str, Any]], left_out: list[str], folder: Path, as_json: bool) -> None:
    from fenchel.files import write_atomically

    if rows:
        write_atomically(folder / ROWS_NAME, (json.dumps(rows, indent=2) + "\n").encode())
    if as_json:
        file = str(folder / ROWS_NAME) if rows else None
        print_json({"file": file, "rows": rows, "left_out": left_out})
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
