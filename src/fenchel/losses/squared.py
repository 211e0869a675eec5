"""Squared loss on the scores themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from fenchel.losses.base import Loss
from fenchel.names import register


@final
@register("squared")
@dataclass(frozen=True, kw_only=True)
class SquaredLoss(Loss):
    """L = 1/2 ||h - y||^2, so f = 1/2 ||h||^2 and g = identity; 1/2 ||y||^2 is a term in y alone.

    The label is h itself and the objective -1/2 ||h||^2: push the scores away from zero, without end.

    >>> import torch
    >>> SquaredLoss().conjugate(torch.tensor([2.0, 0.0, 1.0]))
    tensor(-2.5000)
    """

    objective_is_bounded: ClassVar[bool] = False

    def f(self, h: Tensor) -> Tensor:
        return h.square().sum(-1) / 2

    def g(self, h: Tensor) -> Tensor:
        return h

    def label_term(self, y: Tensor) -> Tensor:
        return y.square().sum(-1) / 2

    def _at(self, h: Tensor, y: Tensor) -> Tensor:
        return (h - y).square().sum(-1) / 2

    def _label(self, h: Tensor) -> Tensor:
        return h

    def _conjugate(self, h: Tensor) -> Tensor:
        return -h.square().sum(-1) / 2
