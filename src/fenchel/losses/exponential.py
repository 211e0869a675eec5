"""Exponential loss of boosting, for one signed score."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fenchel.losses.base import Loss
from fenchel.losses.labels import LabelSpace, Signed
from fenchel.names import register


@final
@register("exponential")
@dataclass(frozen=True, kw_only=True)
class ExponentialLoss(Loss):
    """L = exp(-y h) for y in {-1, +1}, so f = cosh and g = sinh; one score on the last axis.

    The label is tanh(h) and the objective 1/cosh(h), each in a form that does not overflow.

    >>> h = torch.tensor([[0.5], [-2.0]])
    >>> ExponentialLoss().label(h).squeeze(-1)
    tensor([ 0.4621, -0.9640])
    >>> ExponentialLoss().conjugate(h)
    tensor([0.8868, 0.2658])
    """

    labels: ClassVar[LabelSpace] = Signed()

    def f(self, h: Tensor) -> Tensor:
        return h.cosh().sum(-1)

    def g(self, h: Tensor) -> Tensor:
        return h.sinh()

    def _at(self, h: Tensor, y: Tensor) -> Tensor:
        """cosh h - y sinh h as two exponentials; a weight of zero must win against an overflow."""
        against, along = (1 - y) / 2, (1 + y) / 2
        rising = torch.where(against == 0, 0.0, against * h.masked_fill(against == 0, 0.0).exp())
        falling = torch.where(along == 0, 0.0, along * (-h).masked_fill(along == 0, 0.0).exp())
        return (rising + falling).sum(-1)

    def _label(self, h: Tensor) -> Tensor:
        return h.tanh()

    def _conjugate(self, h: Tensor) -> Tensor:
        return (math.log(2) - torch.logaddexp(h, -h)).exp().sum(-1)
