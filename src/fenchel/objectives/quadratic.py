"""The quadratic shape fitted to objectives learned for a squared-loss source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Tensor

from fenchel.names import register
from fenchel.objectives.base import Objective


@final
@register("quadratic")
@dataclass(frozen=True)
class Quadratic(Objective):
    """sum_k (a h_k^2 + offset). With a = -1/2 it is the conjugate objective of the squared loss.

    >>> import torch
    >>> Quadratic(a=-0.5)(torch.tensor([[2.0, 0.0, 1.0]]))
    tensor([-2.5000])
    """

    a: float = -0.5
    offset: float = 0.0

    def value(self, h: Tensor) -> Tensor:
        return (self.a * h.square() + self.offset).sum(-1)

    @property
    def is_bounded(self) -> bool:
        """A parabola that opens downwards has no minimum."""
        return self.a >= 0
