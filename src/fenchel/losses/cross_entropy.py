"""Cross-entropy, whose test-time objective is the softmax entropy (TENT)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fenchel.losses.true_class import TrueClassLoss
from fenchel.names import register


@final
@register("cross-entropy")
@dataclass(frozen=True, kw_only=True)
class CrossEntropy(TrueClassLoss):
    """L = -log z_y, so f = logsumexp and g = identity.

    The label is z = softmax(h), the objective the entropy -sum_k z_k log z_k.

    >>> h = torch.tensor([2.0, 0.0, 0.0])
    >>> CrossEntropy().label(h)
    tensor([0.7870, 0.1065, 0.1065])
    >>> CrossEntropy().conjugate(h)
    tensor(0.6656)
    """

    def f(self, h: Tensor) -> Tensor:
        return h.logsumexp(-1)

    def g(self, h: Tensor) -> Tensor:
        return h

    def penalty(self, log_z: Tensor) -> Tensor:
        return -log_z

    def log_slope(self, log_z: Tensor) -> Tensor:
        return torch.zeros_like(log_z)
