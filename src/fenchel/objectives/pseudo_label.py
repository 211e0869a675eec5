"""Pseudo-labels: the training loss at a label computed from the logits. They differ in the label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import torch
from torch import Tensor

from fenchel.losses import Loss, OneOfMany
from fenchel.names import register
from fenchel.objectives.base import Objective

if TYPE_CHECKING:
    from typing_extensions import Self


@final
@register("conjugate")
@dataclass(frozen=True)
class Conjugate(Objective):
    """The training loss at its conjugate label, the one that makes the prediction optimal.

    For `CrossEntropy()` this is the softmax entropy, hence TENT.

    >>> import fenchel
    >>> Conjugate(fenchel.PolyLoss(epsilon=6.0))(torch.tensor([[2.0, 0.0, 0.0]]))
    tensor([4.4729])
    """

    paper: ClassVar[str] = (
        'Goyal et al., "Test-Time Adaptation via Conjugate Pseudo-labels", NeurIPS 2022, arXiv 2207.09640'
    )

    loss: Loss

    def value(self, h: Tensor) -> Tensor:
        return self.loss.conjugate(h)

    @property
    def is_bounded(self) -> bool:
        """Whether the objective has a lower bound; that of the squared loss, for one, has none."""
        return self.loss.objective_is_bounded

    def check(self) -> None:
        """Refuse a loss whose conjugate objective is constant: it would adapt nothing, silently."""
        with torch.inference_mode(False), torch.enable_grad():
            h = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(4, 3).requires_grad_()
            try:
                (slope,) = torch.autograd.grad(self.value(h).sum(), h, materialize_grads=True)
            except (RuntimeError, ValueError):
                return  # made for another number of classes; derive has judged it there
        if bool((slope.abs() < 1e-10).all()):
            raise ValueError(
                f"the conjugate objective of {self.loss!r} has no gradient, so it would adapt nothing. Use "
                "another method, such as method='entropy'."
            )


@final
@register("soft")
@dataclass(frozen=True)
class SoftPseudoLabel(Objective):
    """The training loss at the model's own probabilities. The gradient flows through them.

    >>> import fenchel
    >>> SoftPseudoLabel(fenchel.PolyLoss(epsilon=6.0))(torch.tensor([[2.0, 0.0, 0.0]]))
    tensor([2.8134])
    """

    loss: Loss

    def value(self, h: Tensor) -> Tensor:
        return self.loss(h, self.loss.labels.soft(h))


@final
@register("hard")
@dataclass(frozen=True)
class HardPseudoLabel(Objective):
    """The training loss at the most likely label, where the confidence is above a threshold.

    Strictly above; `threshold=None` keeps every sample. A batch with none above it takes no step.

    >>> import fenchel
    >>> objective = HardPseudoLabel(fenchel.CrossEntropy(), threshold=0.75)
    >>> h = torch.tensor([[2.0, 0.0, 0.0], [0.1, 0.0, 0.0]])
    >>> objective(h), objective.weights(h)
    (tensor([0.2395, 1.0331]), tensor([1., 0.]))
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

    def weight(self, h: Tensor) -> Tensor | None:
        return None if self.threshold is None else self.loss.labels.confidence(h) > self.threshold

    @classmethod
    def made_for(cls, loss: Loss | None, **options: Any) -> Self:
        """For labels other than one class out of C it keeps every sample, as the paper's baseline does."""
        if loss is not None and not isinstance(loss.labels, OneOfMany):
            options.setdefault("threshold", None)
        return super().made_for(loss, **options)
