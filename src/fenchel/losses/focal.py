"""Focal loss: cross-entropy with less weight on samples that are classified well."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from fenchel.losses.base import require_range
from fenchel.losses.true_class import TrueClassLoss, log_complement
from fenchel.names import register


@final
@register("focal")
@dataclass(frozen=True, kw_only=True)
class FocalLoss(TrueClassLoss):
    """L = -(1 - z_y)^gamma log z_y, with gamma >= 0; gamma = 0 is cross-entropy.

    The label is 1 / ((1-z)^gamma / z - gamma (1-z)^(gamma-1) log z), normalised.

    Reference: Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017.

    >>> FocalLoss(gamma=2.0).label(torch.tensor([2.0, 0.0, 0.0]))
    tensor([0.9730, 0.0135, 0.0135])
    """

    gamma: float = 2.0

    def __post_init__(self) -> None:
        require_range("FocalLoss", "gamma", self.gamma, self.gamma >= 0, "gamma >= 0")

    def penalty(self, log_z: Tensor) -> Tensor:
        log_rest = log_complement(log_z)
        return (self.gamma * log_rest).exp() * F.softplus(log_rest - log_z)

    def log_slope(self, log_z: Tensor) -> Tensor:
        """(gamma - 1) log(1-z) + log((1-z) - gamma z log z), each part in log space."""
        if self.gamma == 0:
            return torch.zeros_like(log_z)
        log_rest = log_complement(log_z)
        own = math.log(self.gamma) + log_z + _log_softplus(log_rest - log_z)
        return (self.gamma - 1) * log_rest + torch.logaddexp(log_rest, own)


def _log_softplus(x: Tensor) -> Tensor:
    """log(softplus(x)); far below zero softplus(x) is exp(x), whose logarithm is x."""
    far = x < -30.0
    return torch.where(far, x, F.softplus(x.masked_fill(far, 0.0)).log())
