"""`fenchel train`: train a source model, or continue one that was interrupted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from fenchel.cli import completion
from fenchel.cli.console import err, out, pick_device, print_json
from fenchel.names import parse_spec

if TYPE_CHECKING:
    from fenchel.data import Dataset
    from fenchel.models.opening import ModelSpec
    from fenchel.train import Recipe, Result, TrainingRun


def train(
    data: Annotated[
        str,
        typer.Option(
            autocompletion=completion.datasets,
            help="Data set, as `fenchel data list` shows them.",
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            autocompletion=completion.models,
            help="Model, with arguments if need be: `resnet26:normalization=group`; timm:NAME, "
            "torchvision:NAME; or your own as FILE.py:NAME or MODULE:NAME.",
        ),
    ] = "resnet26",
    loss: Annotated[
        str,
        typer.Option(
            autocompletion=completion.losses,
            help="Any loss of the library: `cross-entropy`, `poly:epsilon=6`.",
        ),
    ] = "cross-entropy",
    weights: Annotated[
        str | None,
        typer.Option(
            help="Begin with the parameters of this file, or of zoo:NAME, instead of random ones. "
            "Running statistics may be absent.",
        ),
    ] = None,
    preset_name: Annotated[
        str | None,
        typer.Option(
            "--preset",
            autocompletion=completion.training_presets,
            help="Of settings, such as paper or digits; by default it suits --data.",
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Instead of the preset's.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Instead of the preset's.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Instead of the preset's.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Instead of the preset's.")] = None,
    clip_norm: Annotated[float | None, typer.Option(help="Instead of the preset's.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="`sgd` or `adam`.")] = None,
    schedule: Annotated[str | None, typer.Option(help="`cosine`, `one-cycle`, `constant`.")] = None,
    augmentation: Annotated[
        str | None, typer.Option(help="`none`, `pad-crop:padding=4`, `resized-crop:smallest=0.2`.")
    ] = None,
    held_out: Annotated[
        float | None, typer.Option(help="Share of the training images to score every epoch.")
    ] = None,
    keep: Annotated[
        str | None, typer.Option(help="`last`, or `best` on the held-out training images.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same weights (on one machine's CPU).")] = 0,
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of the run; the same command again continues it."),
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Folder of the data; by default that of `data fetch`.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Train on the first images only.")] = None,
    device: Annotated[str, typer.Option(help="`auto`, `cpu`, `cuda` or `mps`.")] = "auto",
    threads: Annotated[int | None, typer.Option(help="CPU threads; part of the run.")] = None,
    save_seconds: Annotated[
        float, typer.Option(help="Seconds between saves within an epoch.")
    ] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a source model with any loss and keep a checkpoint that knows how it was trained.

    Kill it at any moment: the same command continues to the bit-identical result. The test set is
    scored once, at the end, and decides nothing.

    [bold]Examples[/bold]

        fenchel train --data cifar10 --model my_net.py:build --out runs/own

        fenchel train --data cifar10 --model resnet26 --loss poly:epsilon=6 --seed 0 --out runs/poly
    """
    from fenchel import data as datasets
    from fenchel import losses
    from fenchel.models.places import resolve
    from fenchel.train import TrainingRun, preset, preset_for
    from fenchel.train import train as train_source

    trained_with = losses.parse(loss)
    architecture = _architecture(model)
    where = folder or Path("runs") / default_name(data, model, loss, seed)
    training = datasets.load(data, split="train", root=root)
    chosen = preset_name or preset_for(parse_spec(data)[0], images=training.is_images)
    recipe = preset(chosen, loss=loss).replace(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        optimizer=optimizer,
        schedule=schedule,
        augmentation=augmentation,
        held_out=held_out,
        keep=keep,
    )
    run = TrainingRun(
        data=training,
        test=load_test(data, root, training),
        model=architecture.name,
        model_arguments=architecture.arguments,
        own=None if architecture.code is None else architecture,
        weights=None if weights is None else resolve(weights),
        loss=trained_with,
        recipe=recipe,
        out=where,
        seed=seed,
        limit=limit,
        device=pick_device(device),
        threads=threads,
        save_seconds=save_seconds,
    )
    announce(run, chosen)
    result = train_source(run)
    if as_json:
        print_json(summary(run, result))
    else:
        conclude(result)


def _architecture(model: str) -> ModelSpec:
    """What is to be trained; a checkpoint was trained already."""
    from fenchel.models.opening import read_spec

    found = read_spec(model)
    if found.kind == "checkpoint":
        raise ValueError(
            f"training begins with an architecture; {model} is a checkpoint. Pass model=resnet26, or "
            "FILE.py:NAME for your own."
        )
    found.factory()  # unknown names are told before the data are opened
    return found


def load_test(data: str, root: Path | None, training: Dataset) -> Dataset | None:
    """The data set's own test split, unless it is the training images under another name."""
    from fenchel.data import load

    test = load(data, root=root)
    if test.digest == training.digest:
        err.print(
            f"note: {escape(data)} has no test images of its own, so none are scored "
            "(--held-out 0.1 keeps some of the training images out)",
            soft_wrap=True,
            highlight=False,
        )
        return None
    return test


def default_name(data: str, model: str, loss: str, seed: int) -> str:
    """The folder of a run whose user named none.

    >>> default_name("cifar10", "resnet26", "poly:epsilon=6", 0)
    'cifar10-resnet26-poly-epsilon-6-seed0'
    """
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{data}-{model}-{loss}-seed{seed}")


def announce(run: TrainingRun, chosen: str) -> None:
    """Say on standard error what is about to happen."""
    from fenchel.train import state

    recipe: Recipe = run.recipe
    begun = " (continued)" if (run.out / state.FILE_NAME).is_file() else ""
    err.print(
        f"training {escape(run.model)} on {escape(run.data.name)} with {escape(run.loss.spec)}: "
        f"preset {chosen}, {recipe.epochs} epochs, seed {run.seed}, {run.device}, "
        f"in {escape(str(run.out))}{begun}",
        soft_wrap=True,
        highlight=False,
    )


def summary(run: TrainingRun, result: Result) -> dict[str, Any]:
    """The result as plain values."""
    return {
        "checkpoint": str(result.path),
        "loss": run.loss.spec,
        "metrics": dict(result.metrics),
        "history": [dict(row) for row in result.history],
    }


def conclude(result: Result) -> None:
    """Print the metrics and where the checkpoint lies."""
    for name, value in result.metrics.items():
        shown = f"{100 * value:.2f} %" if name.endswith("accuracy") else f"{value:.4f}"
        out.print(f"{name.replace('_', ' ')}: {shown}", highlight=False)
    out.print(f"checkpoint: {escape(str(result.path))}", soft_wrap=True, highlight=False)
