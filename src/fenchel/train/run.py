"""What a training run is: its settings, what identifies it, and what it leaves."""

from __future__ import annotations

import csv
import inspect
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fenchel._version import __version__
from fenchel.data import Dataset
from fenchel.files import digest_of, write_atomically
from fenchel.losses import Loss
from fenchel.models import Metadata, factory
from fenchel.models.opening import ModelSpec
from fenchel.train import augmentation
from fenchel.train.examples import Examples, channel_statistics
from fenchel.train.recipe import Recipe

HISTORY_NAME = "history.csv"


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """One training run. All but `out`, `test` and `save_seconds` decides the weights.

    Attributes:
        data: the training examples.
        model: a name for `fenchel.models.build`, or that of `own`.
        own: code of one's own that makes the network, from `fenchel.models.opening.read_spec`.
        loss: any loss of the library.
        recipe: how to train.
        out: the folder of the run: state, checkpoint and history.
        test: the test set, scored once after the end; it decides nothing.
        model_arguments: further arguments of the model; classes, channels, image size and
            preprocessing come from the data.
        weights: the file whose parameters training begins with; random ones without it.
        seed: the seed of all random draws.
        limit: train on the first `limit` examples only.
        device: "cpu", "cuda" or "mps".
        threads: torch threads on the CPU. They decide the order of sums, so they belong to the
            run: by default those it was started with, or else torch's own number.
        save_seconds: how often the state is saved within an epoch (it always is at its end).
    """

    data: Dataset
    model: str
    loss: Loss
    recipe: Recipe
    out: Path
    test: Dataset | None = None
    model_arguments: Mapping[str, Any] = field(default_factory=dict)
    own: ModelSpec | None = None
    weights: Path | None = None
    seed: int = 0
    limit: int | None = None
    device: str = "cpu"
    threads: int | None = None
    save_seconds: float = 30.0


@dataclass(frozen=True)
class Result:
    """What a run leaves: the file of the kept checkpoint, its metrics, one row per epoch."""

    path: Path
    metrics: Mapping[str, float]
    history: Sequence[Mapping[str, float]]


def arguments_for(run: TrainingRun, examples: Examples) -> dict[str, Any]:
    """Arguments of the model: those that the data decide and its factory takes, then the user's own."""
    shape = run.data.shape
    told: dict[str, Any] = {"classes": run.loss.labels.scores(len(run.data.classes))}
    common = {"classes"}
    if run.data.is_images:
        side = augmentation.parse(run.recipe.augmentation).output_side
        height, width = side(shape[0]), side(shape[1])
        mean, std = channel_statistics(examples)
        told |= {"channels": shape[2], "mean": mean, "std": std, "image_size": height}
        told["features"] = height * width * shape[2]
        common |= {"channels", "mean", "std"}
    else:
        told["features"] = shape[0]
    make = factory(run.model) if run.own is None else run.own.factory()
    parameters = inspect.signature(make).parameters
    passes_on = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    taken = {
        name: value
        for name, value in told.items()
        if name in parameters or (passes_on and name in common)
    }
    return {**taken, **run.model_arguments}


def metadata_for(run: TrainingRun, arguments: Mapping[str, Any], threads: int) -> Metadata:
    """The metadata of the checkpoint without epoch and metrics; this also identifies the run."""
    settings: dict[str, Any] = {
        "seed": run.seed,
        "limit": run.limit,
        "device": run.device,
        "threads": threads,
        "torch": torch.__version__,
        "fenchel": __version__,
    }
    if run.weights is not None:
        settings["started_from"] = digest_of(run.weights.read_bytes())
    return Metadata(
        architecture=run.model,
        arguments=arguments,
        loss=run.loss.spec,
        classes=run.data.classes,
        data=run.data.name,
        data_digest=run.data.digest,
        recipe={**run.recipe.describe(), **settings},
        code={} if run.own is None else run.own.digests(),
    )


def require_same_run(folder: Path, started: Metadata, now: Metadata) -> None:
    """Raise ValueError if the folder's run was started with other settings."""
    before, after = _settings(started), _settings(now)
    changed = [
        f"{key}={before.get(key)!r} (now {after.get(key)!r})"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]
    if changed:
        raise ValueError(
            f"a folder holds one run; the one in {str(folder)!r} was started with "
            f"{', '.join(changed)}. Repeat its settings to continue it, or choose another folder."
        )


def _settings(metadata: Metadata) -> dict[str, Any]:
    """Everything that decides the weights, flat; as JSON keeps it."""
    recipe = {k: v for k, v in metadata.recipe.items() if k not in ("torch", "fenchel")}
    names = ("architecture", "arguments", "loss", "classes", "data", "data_digest", "code")
    return {**{name: getattr(metadata, name) for name in names}, **recipe}


def write_history(folder: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """The metrics of every epoch as CSV: no timings, so that equal runs leave equal files."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(folder / HISTORY_NAME, text.getvalue().encode())


def read_history(folder: Path) -> list[dict[str, float]]:
    """The rows that `write_history` wrote; none if the file is gone."""
    file = folder / HISTORY_NAME
    if not file.is_file():
        return []
    with file.open(newline="") as opened:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(opened)]
