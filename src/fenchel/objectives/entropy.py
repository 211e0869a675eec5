"""Entropies of the prediction, plain and fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

from torch import Tensor

from fenchel.facts import Published
from fenchel.losses import BinaryCrossEntropy, CrossEntropy, Loss, OneOfMany
from fenchel.names import register
from fenchel.objectives.base import Objective

if TYPE_CHECKING:
    from typing_extensions import Self

ENTROPIES: dict[str, Loss] = {"softmax": CrossEntropy(), "sigmoid": BinaryCrossEntropy()}
"""The entropy under an activation is the conjugate objective of its log loss."""


@final
@register("entropy")
@dataclass(frozen=True)
class Entropy(Objective):
    """The entropy of the prediction (TENT): of softmax(h), or of sigmoid(h) summed over the scores.

    >>> import torch
    >>> Entropy()(torch.tensor([[2.0, 0.0, 0.0], [9.0, 0.0, 0.0]]))
    tensor([0.6656, 0.0025])
    """

    paper: ClassVar[str] = (
        'Wang et al., "Tent: Fully Test-Time Adaptation by Entropy Minimization", ICLR 2021, '
        "arXiv 2006.10726"
    )
    published: ClassVar[Published] = {
        "cifar10": {"optimizer": "adam", "learning_rate": 1e-3, "predict": "before"},
        "imagenet": {"optimizer": "sgd", "learning_rate": 2.5e-4, "predict": "before"},
    }

    activation: Literal["softmax", "sigmoid"] = "softmax"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.activation not in ENTROPIES:
            raise ValueError(
                f"Entropy needs activation 'softmax' or 'sigmoid'; got {self.activation!r}."
            )

    def value(self, h: Tensor) -> Tensor:
        return ENTROPIES[self.activation].conjugate(h)

    @classmethod
    def made_for(cls, loss: Loss | None, **options: Any) -> Self:
        """For labels other than one class out of C the activation is the sigmoid."""
        if loss is not None and not isinstance(loss.labels, OneOfMany):
            options.setdefault("activation", "sigmoid")
        return super().made_for(loss, **options)


@final
@register("scaled-entropy")
@dataclass(frozen=True)
class ScaledEntropy(Objective):
    """alpha H(softmax(h / temperature)) - offset: the shape fitted to learned objectives.

    >>> import torch
    >>> ScaledEntropy(alpha=2.0, temperature=3.0)(torch.tensor([[3.0, 0.0, 0.0]]))
    tensor([1.9507])
    """

    alpha: float = 1.0
    offset: float = 0.0

    def value(self, h: Tensor) -> Tensor:
        return self.alpha * CrossEntropy().conjugate(h) - self.offset
