"""Pseudo-labels: the training loss at a label computed from the logits. They differ in the label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Tensor

from fenchel.losses import Loss
from fenchel.objectives.base import Objective, register


@final
@register("conjugate")
@dataclass(frozen=True)
class Conjugate(Objective):
    """The label that makes the prediction optimal under the training loss (the conjugate label).

    For `CrossEntropy()` this is the softmax entropy, hence TENT.
    """

    loss: Loss

    def value(self, h: Tensor) -> Tensor:
        return self.loss.conjugate(h)


@final
@register("soft")
@dataclass(frozen=True)
class SoftPseudoLabel(Objective):
    """The model's own probabilities as the label. Not detached: the gradient flows through it."""

    loss: Loss

    def value(self, h: Tensor) -> Tensor:
        return self.loss(h, self.loss.labels.soft(h))


@final
@register("hard")
@dataclass(frozen=True)
class HardPseudoLabel(Objective):
    """The most likely label, for samples whose confidence lies strictly above the threshold.

    `threshold=None` keeps every sample. A batch with none above it takes no step.
    """

    loss: Loss
    threshold: float | None = 0.75

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold is not None and not 0 <= self.threshold < 1:
            raise ValueError(
                f"HardPseudoLabel needs 0 <= threshold < 1, or None for no threshold; "
                f"got {self.threshold!r}."
            )

    def value(self, h: Tensor) -> Tensor:
        return self.loss(h, self.loss.labels.hard(h))

    def selected(self, h: Tensor) -> Tensor | None:
        return None if self.threshold is None else self.loss.labels.confidence(h) > self.threshold
