"""Generalised cross-entropy: between cross-entropy (q -> 0) and the mean absolute error (q = 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Tensor

from fenchel.losses.base import require_range
from fenchel.losses.true_class import TrueClassLoss
from fenchel.names import register


@final
@register("generalized-cross-entropy")
@dataclass(frozen=True, kw_only=True)
class GeneralizedCrossEntropy(TrueClassLoss):
    """L = (1 - z_y^q) / q, so f = 1/q and g = z^q / q, with 0 < q <= 1.

    The label is z^(1-q), normalised, and the objective (1 - 1 / sum_k z_k^(1-q)) / q. At q = 1 the
    label is uniform and the objective constant: good for robust training, useless to adapt with.

    Reference: Zhang and Sabuncu, "Generalized Cross Entropy Loss", NeurIPS 2018.

    >>> import torch
    >>> GeneralizedCrossEntropy(q=0.7).label(torch.tensor([2.0, 0.0, 0.0]))
    tensor([0.4767, 0.2616, 0.2616])
    """

    q: float = 0.7

    def __post_init__(self) -> None:
        require_range("GeneralizedCrossEntropy", "q", self.q, 0 < self.q <= 1, "0 < q <= 1")

    def f(self, h: Tensor) -> Tensor:
        return (h[..., 0] * 0) + 1 / self.q

    def g(self, h: Tensor) -> Tensor:
        return (self.q * h.log_softmax(-1)).exp() / self.q

    def penalty(self, log_z: Tensor) -> Tensor:
        return -(self.q * log_z).expm1() / self.q

    def log_slope(self, log_z: Tensor) -> Tensor:
        return self.q * log_z

    def _conjugate(self, h: Tensor) -> Tensor:
        log_total = ((1 - self.q) * h.log_softmax(-1)).logsumexp(-1)
        return -(-log_total).expm1() / self.q
