"""PolyLoss, for which the derived objective beats the entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fenchel.losses.base import require_range
from fenchel.losses.true_class import TrueClassLoss
from fenchel.names import register


@final
@register("poly")
@dataclass(frozen=True, kw_only=True)
class PolyLoss(TrueClassLoss):
    """L = -log z_y + epsilon (1 - z_y), so f = logsumexp and g = h - epsilon (1 - z).

    The label is z / (1 + epsilon z), normalised: O(C) where the defining equation asks for the
    inverse of a C x C matrix. `epsilon` > -1; epsilon = 0 is cross-entropy.

    Reference: Leng et al., "PolyLoss", ICLR 2022.

    >>> PolyLoss(epsilon=6.0).label(torch.tensor([2.0, 0.0, 0.0]))
    tensor([0.5142, 0.2429, 0.2429])
    """

    epsilon: float = 1.0

    def __post_init__(self) -> None:
        require_range("PolyLoss", "epsilon", self.epsilon, self.epsilon > -1, "epsilon > -1")

    def f(self, h: Tensor) -> Tensor:
        return h.logsumexp(-1)

    def g(self, h: Tensor) -> Tensor:
        return h - self.epsilon * (1 - h.softmax(-1))

    def penalty(self, log_z: Tensor) -> Tensor:
        return -log_z + self.epsilon * (1 - log_z.exp())

    def log_slope(self, log_z: Tensor) -> Tensor:
        return torch.log1p(self.epsilon * log_z.exp())
