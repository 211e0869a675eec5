"""Losses of torch with weights or margins as functions of scores and soft labels, for `derive`.

Each is an object rather than a closure, so that it can be pickled. Two of them are equal only if they are
one: tensors have no truth value to compare by.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True, eq=False)
class WeightedCrossEntropy:
    """-sum_k w_k y_k log z_k with smoothed labels y, one value per sample."""

    weight: Tensor
    smoothing: float

    def __call__(self, h: Tensor, y: Tensor) -> Tensor:
        weight = _fitting(self.weight, h)
        return F.cross_entropy(
            h, y, weight=weight, label_smoothing=self.smoothing, reduction="none"
        )


@dataclass(frozen=True, eq=False)
class WeightedBinaryCrossEntropy:
    """-w_k (p_k y_k log s_k + (1 - y_k) log(1 - s_k)), s = sigmoid(h), one value per score."""

    weight: Tensor | None
    pos_weight: Tensor | None

    def __call__(self, h: Tensor, y: Tensor) -> Tensor:
        weight = None if self.weight is None else _fitting(self.weight, h)
        pos_weight = None if self.pos_weight is None else _fitting(self.pos_weight, h)
        return F.binary_cross_entropy_with_logits(
            h, y, weight=weight, pos_weight=pos_weight, reduction="none"
        )


@dataclass(frozen=True, eq=False)
class MultiMargin:
    """sum_k y_k L(h, e_k) with L(h, e_k) = w_k/C sum_{j != k} max(0, margin + h_j - h_k)^p, p = 1 or 2.

    With p = 2 the slopes are the rates of a Markov chain that steps from class k to class j, and the
    label is its stationary distribution. It is unique, since the largest score is reached from anywhere.
    Beyond 256 classes the solver of `derive` need not converge; then it says so.

    Torch's own operation is differentiable only once. Here the inner sum comes from running sums over
    the sorted scores: a matrix of all pairs per sample would not fit into memory with many classes.
    """

    p: int
    margin: float
    weight: Tensor | None

    def __call__(self, h: Tensor, y: Tensor) -> Tensor:
        h = h - h.detach().amax(-1, keepdim=True)  # small numbers: less is lost by cancellation
        room = self.margin - h
        falling = h.sort(-1, descending=True).values
        count = torch.searchsorted(
            -falling.detach(), room.detach()
        )  # of classes with h_j + room_k > 0
        total = count * room**self.p - self.margin**self.p  # the pair (k, k) is none
        if self.p == 1:
            total = total + _first(count, falling)
        else:
            total = total + 2 * room * _first(count, falling) + _first(count, falling.square())
        weight = 1.0 if self.weight is None else _fitting(self.weight, h)
        return (y * weight * total).sum(-1) / h.shape[-1]


def _first(count: Tensor, terms: Tensor) -> Tensor:
    """The sum of the first terms of a sample, as many as `count` says."""
    return F.pad(terms.cumsum(-1), (1, 0)).gather(-1, count)


def _fitting(weight: Tensor, h: Tensor) -> Tensor:
    """The weights in the precision and on the device of the scores."""
    if weight.numel() not in (1, h.shape[-1]):
        raise ValueError(
            f"a loss with class weights is for as many classes as it has weights, {weight.numel()}; "
            f"got scores of {h.shape[-1]} classes. Check the model and the weights."
        )
    return weight.to(h)
