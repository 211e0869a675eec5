"""What a run of meta-learning is: its settings, and what its folder remembers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from fenchel._version import __version__
from fenchel.adapters import SGD, Optimizer
from fenchel.data.stream import Shift
from fenchel.losses import CrossEntropy, OneOfMany, SquaredLoss, open_loss
from fenchel.models import Checkpoint
from fenchel.names import unknown
from fenchel.own_code import label_of
from fenchel.train.meta.gradient import Order
from fenchel.train.schedule import SCHEDULES


def squared_of_probabilities(h: Tensor, labels: Tensor) -> Tensor:
    """The Brier score: the squared loss of the softmax, up to a constant."""
    return SquaredLoss()(h.softmax(-1), labels)


TASK_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross-entropy": CrossEntropy(),
    "squared": SquaredLoss(),
    "brier": squared_of_probabilities,
}
Setting = Literal["mixed", "reset"]
NOT_DECIDING = ("fenchel", "checkpoint", "weights", "trained_with")
"""Entries of a protocol in which a continued run may differ."""


@dataclass(frozen=True, kw_only=True)
class MetaRecipe:
    """How an objective is learned; the defaults are the paper's, where it gives them.

    Attributes:
        task_loss: the loss of the adapted model at the true labels: `cross-entropy`, `squared`, or
            `brier`, the squared loss of the softmax, for sources whose logits are no probabilities.
        sizes: arguments of `LossNetwork`, but for the classes.
        optimizer: the optimiser of the adaptation: SGD or Adam of `fenchel.adapters`.
        epochs: the number of epochs; in each the model starts from the source again.
        batches: the number of batches per epoch, over all shifts together.
        batch_size: the batch size of the adaptation and of the task.
        every: the number of batches between two updates of the objective.
        unroll: batches through which each update differentiates, at most `every`.
        order: `first`, or `second` for exact gradients where `unroll` is above 1.
        setting: `reset`, where an epoch visits one shift after the other and the model starts from
            the source for each, or `mixed`, where a batch holds samples of all shifts.
        learning_rate, weight_decay, schedule: settings of the objective's own Adam.
        seed: the seed of all random draws.
    """

    task_loss: str = "cross-entropy"
    sizes: Mapping[str, Any] = field(default_factory=dict)
    optimizer: Optimizer = field(default_factory=SGD)
    epochs: int = 100
    batches: int = 50
    batch_size: int = 200
    every: int = 5
    unroll: int = 1
    order: Order = "first"
    setting: Setting = "reset"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: str = "constant"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batches", "batch_size", "every", "unroll"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} must be at least 1; got {getattr(self, name)}. Choose a larger number."
                )
        if self.unroll > self.every:
            raise ValueError(
                f"an update may unroll at most the {self.every} batches since the last one; got "
                f"unroll={self.unroll}. Lower it, or raise every."
            )
        if self.batches < self.every:
            raise ValueError(
                f"an epoch of {self.batches} batches holds no update, which comes with every "
                f"{self.every}th. Raise batches, or lower every."
            )
        if not (self.learning_rate > 0 and self.weight_decay >= 0):
            raise ValueError(
                "the objective's Adam needs learning_rate > 0 and weight_decay >= 0; got "
                f"{self.learning_rate} and {self.weight_decay}."
            )
        for kind, value, known in (
            ("task loss", self.task_loss, TASK_LOSSES),
            ("order of the meta-gradient", self.order, get_args(Order)),
            ("setting", self.setting, get_args(Setting)),
            ("schedule", self.schedule, SCHEDULES),
        ):
            if value not in known:
                raise unknown(kind, value, known)


@dataclass(frozen=True, kw_only=True)
class MetaRun:
    """An objective to be learned for one source model.

    Attributes:
        source: the model that will adapt, and the loss it was trained with.
        shifts: labelled, and holding the images to learn on only.
        recipe: how to learn.
        out: the folder of the run.
        facts: about data and split, for the protocol in the objective's file.
        device: "cpu", "cuda" or "mps".
        save_seconds: within an epoch, the state is saved about this often.
    """

    source: Checkpoint
    shifts: Sequence[Shift]
    recipe: MetaRecipe
    out: Path
    facts: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    save_seconds: float = 30.0

    def __post_init__(self) -> None:
        loss = open_loss(self.source.loss_spec)
        if not isinstance(loss.labels, OneOfMany):
            raise ValueError(
                "objectives are learned for models with one score per class; this one was trained "
                f"with {loss!r}. Use its conjugate objective."
            )
        for shift in self.shifts:
            require_fit(self.source, shift)

    def protocol(self) -> dict[str, Any]:
        """Everything that decides the objective, as plain facts."""
        recipe = {
            item.name: getattr(self.recipe, item.name) for item in dataclasses.fields(self.recipe)
        }
        recipe["sizes"] = dict(self.recipe.sizes)
        optimizer = self.recipe.optimizer
        recipe["optimizer"] = type(optimizer).__name__.lower()
        inner = {f"inner_{name}": value for name, value in dataclasses.asdict(optimizer).items()}
        return {
            "source": {
                "architecture": self.source.metadata.architecture,
                "loss": label_of(self.source.loss_spec),
                "data": self.source.metadata.data,
                "digest": self.source.digest,
                **({"files": dict(self.source.files)} if self.source.files else {}),
            },
            "classes": list(self.source.classes),
            "shifts": [shift.record() for shift in self.shifts],
            "recipe": {**recipe, **_as_json(inner)},
            "device": self.device,
            "threads": torch.get_num_threads(),
            "fenchel": __version__,
            **self.facts,
        }


def require_fit(source: Checkpoint, shift: Shift) -> None:
    """Refuse a data set whose classes or channels are not those of the model."""
    dataset = shift.dataset
    found, expected = len(dataset.classes), len(source.classes)
    if found != expected:
        raise ValueError(
            f"the data must have the model's {expected} classes; {dataset.name} has {found}. "
            "Choose another data set or checkpoint."
        )
    channels = source.metadata.arguments.get("channels")
    if dataset.is_images and channels is not None and channels != dataset.shape[-1]:
        raise ValueError(
            f"the model takes images of {channels} channels; those of {dataset.name} have "
            f"{dataset.shape[-1]}. For digits, add :digits=True to the name of the data set."
        )


def require_same_protocol(folder: Path, started: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to continue a run that was started with other settings."""
    before, after = _flat(started), _flat(now)
    changed = [
        f"{key}={before.get(key)!r} (now {after.get(key)!r})"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and key not in NOT_DECIDING
    ]
    if changed:
        raise ValueError(
            f"a folder holds one run; the one in {str(folder)!r} was started with "
            f"{', '.join(changed[:4])}. Repeat its settings to continue it, or choose another folder."
        )


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in _as_json(values).items():
        name = f"{prefix}{key}"
        flat |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def _as_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Tuples as lists, as JSON gives them back."""
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in values.items()
    }
