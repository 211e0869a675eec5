"""Losses of the true class's softmax probability alone: one scalar function, no linear algebra.

With L(h, e_k) = phi(z_k), z = softmax(h) and phi decreasing, stationarity of sum_k y_k phi(z_k) reads

    y_j phi'(z_j) z_j = z_j sum_k y_k phi'(z_k) z_k     for every j,

so the conjugate label is y~_k proportional to -1/phi'(z_k), at any number of classes in O(C).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fenchel.losses.base import Loss


@dataclass(frozen=True, kw_only=True)
class TrueClassLoss(Loss):
    """The rule above in log space. A subclass gives phi and its logarithmic slope.

    Soft labels are taken to sum to one, as the rule needs.
    """

    @abstractmethod
    def penalty(self, log_z: Tensor) -> Tensor:
        """phi(z), elementwise, from log z."""

    @abstractmethod
    def log_slope(self, log_z: Tensor) -> Tensor:
        """log(-z phi'(z)), elementwise: zero for cross-entropy."""

    def f(self, h: Tensor) -> Tensor:
        return torch.zeros_like(h[..., 0])

    def g(self, h: Tensor) -> Tensor:
        return -self.penalty(h.log_softmax(-1))

    @final
    def _at(self, h: Tensor, y: Tensor) -> Tensor:
        return (y * self.penalty(h.log_softmax(-1))).sum(-1)

    def _label(self, h: Tensor) -> Tensor:
        return self._label_from(h.log_softmax(-1))

    def _conjugate(self, h: Tensor) -> Tensor:
        log_z = h.log_softmax(-1)
        return (self._label_from(log_z) * self.penalty(log_z)).sum(-1)

    def _label_from(self, log_z: Tensor) -> Tensor:
        return (log_z - self.log_slope(log_z)).softmax(-1)


def log_complement(log_z: Tensor) -> Tensor:
    """log(1 - z) from log z over the last axis, accurate where z rounds to one.

    Only the largest class can round to one; its complement is the sum of the other classes.
    """
    if log_z.shape[-1] < 2:
        raise ValueError(
            "a softmax loss needs at least 2 classes on the last axis; got 1. "
            "For one score and labels -1/+1 use ExponentialLoss, for 0/1 BinaryCrossEntropy."
        )
    top = torch.zeros_like(log_z, dtype=torch.bool).scatter_(-1, log_z.argmax(-1, True), True)
    of_top = log_z.masked_fill(top, -torch.inf).logsumexp(-1, keepdim=True)
    of_others = torch.log1p(-log_z.exp().masked_fill(top, 0.0))
    return torch.where(top, of_top, of_others)
