"""The named methods of the paper: which objective, and which statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fenchel.losses import Loss, OneOfMany
from fenchel.names import Registry
from fenchel.objectives import (
    Conjugate,
    Entropy,
    HardPseudoLabel,
    MarginalEntropy,
    Objective,
    RobustPseudoLabel,
    SoftPseudoLabel,
)


@dataclass(frozen=True)
class Method:
    """A name for an objective made from the training loss; `None` means that no parameter moves."""

    name: str
    summary: str
    build: Callable[..., Objective | None]
    """(loss, **options) -> objective; the options are the objective's own fields."""
    needs_loss: bool = False
    source_statistics: bool = False
    """Whether the source's statistics are used whatever was asked for."""


METHODS: Registry[Method] = Registry("method", group="fenchel.methods")


def _add(name: str, summary: str, build: Callable[..., Objective | None], **flags: bool) -> None:
    METHODS.add(name, Method(name, summary, build, **flags))


def _nothing(loss: Loss | None) -> None:
    return None


def _entropy(loss: Loss | None, **options: Any) -> Objective:
    if loss is not None and not isinstance(loss.labels, OneOfMany):
        options.setdefault("activation", "sigmoid")
    return Entropy(**options)


def _hard(loss: Loss, **options: Any) -> Objective:
    if not isinstance(loss.labels, OneOfMany):
        options.setdefault("threshold", None)  # the paper's binary baseline keeps every sample
    return HardPseudoLabel(loss, **options)


def _over_classes(objective: type[Objective]) -> Callable[..., Objective]:
    """An objective that only makes sense for one class out of C."""

    def build(loss: Loss | None, **options: Any) -> Objective:
        if loss is not None and not isinstance(loss.labels, OneOfMany):
            raise ValueError(
                f"{objective.__name__} is defined for one class out of C; {loss!r} has labels of another "
                "kind. Use method='conjugate', 'entropy', 'hard' or 'soft'."
            )
        return objective(**options)

    return build


_add("source", "the model as it is", _nothing, source_statistics=True)
_add("bn", "batch statistics, no update", _nothing)
_add("entropy", "entropy of the prediction (TENT)", _entropy)
_add("hard", "most likely label above a confidence threshold", _hard, needs_loss=True)
_add("soft", "predicted probabilities as the label", SoftPseudoLabel, needs_loss=True)
_add(
    "robust", "generalised cross-entropy at the most likely class", _over_classes(RobustPseudoLabel)
)
_add("memo", "entropy of the mean over AugMix views (MEMO)", _over_classes(MarginalEntropy))
_add("conjugate", "the training loss at its conjugate pseudo-label", Conjugate, needs_loss=True)
