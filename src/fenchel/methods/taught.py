"""Methods in which a student learns the labels of a teacher, its own moving average."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from fenchel.adapters.state import Tensors
from fenchel.losses import Loss
from fenchel.methods.inside import EntropyMethod
from fenchel.objectives import Conjugate, Entropy, HardPseudoLabel, Objective, SoftPseudoLabel
from fenchel.objectives.entropy import ENTROPIES
from fenchel.objectives.pixels import KnowsPixels
from fenchel.objectives.strong_view import strong_view

Labeller = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class TaughtMethod(KnowsPixels, EntropyMethod, ABC):
    """A student learns from a teacher by a loss at the teacher's label.

    The published loss is the cross-entropy at the teacher's probabilities. Here it is the training loss
    at the conjugate label of the teacher's logits, the one that makes the teacher's prediction optimal:
    a student that agrees with the teacher has nothing to learn, whatever the training loss. For
    cross-entropy both are the same, exactly. `objective="entropy"` is the published form for any loss;
    "soft" and "hard" take these labels of the teacher instead.
    """

    shares_batches: ClassVar[bool] = True

    @property
    def has_minimum(self) -> bool:
        """Whatever the conjugate objective is, a training loss at a given label has a lower bound."""
        return True

    def check(self) -> None:
        """Refuse an objective without labels, and images whose range is not known."""
        super().check()
        self.require_pixels()
        _lesson(self.term)

    def first_memory(self, logits: Tensor) -> Tensors:
        """What it remembers before the first batch, given the source's logits: one prediction per image."""
        if logits.ndim != 2:
            raise ValueError(
                f"{type(self).__name__} needs one prediction per image, because views move what an image "
                f"shows; got logits of shape {tuple(logits.shape)}. Use method='conjugate'."
            )
        return {}

    def taught(self, logits: Tensor, teacher: Tensor) -> Tensor:
        """The loss of every sample at the label that the teacher's logits stand for."""
        loss, label = _lesson(self.term)
        return loss(logits / self.term.temperature, label(teacher / self.term.temperature))

    def strong_view(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """A strong view of every image, in the model's range."""
        return self.changed(images, partial(strong_view, generator=generator))


def _lesson(objective: Objective) -> tuple[Loss, Labeller]:
    """A loss, and how its labels follow from the teacher's logits."""
    if isinstance(objective, Conjugate):
        return objective.loss, objective.loss.label
    if isinstance(objective, Entropy):
        loss = ENTROPIES[objective.activation]
        return loss, loss.label
    if isinstance(objective, SoftPseudoLabel):
        return objective.loss, objective.loss.labels.soft
    if isinstance(objective, HardPseudoLabel):
        return objective.loss, objective.loss.labels.hard
    raise ValueError(
        "a teacher gives labels, so the objective is 'conjugate', 'entropy', 'soft' or 'hard'; got "
        f"{objective!r}."
    )


def moved_towards(teacher: Tensors, student: Tensors, weight: float) -> Tensors:
    """The teacher after a step of the student: (1 - weight) x teacher + weight x student."""
    return {name: torch.lerp(teacher[name], student[name], weight) for name in student}
