"""Conjugate labels of three losses, and the losses at given labels, in plain torch."""

from __future__ import annotations

from torch import Tensor


def label(loss: str, logits: Tensor) -> Tensor:
    """The conjugate label: softmax, z / (1 + 2 z) normalised, or the scores themselves."""
    z = logits.softmax(-1)
    if loss == "cross-entropy":
        return z
    if loss == "squared":
        return logits
    return (z / (1 + 2 * z)) / (z / (1 + 2 * z)).sum(-1, keepdim=True)


def loss_at(loss: str, logits: Tensor, y: Tensor) -> Tensor:
    """The training loss of every sample at labels y."""
    if loss == "squared":
        return (logits - y).square().sum(-1) / 2
    z = logits.softmax(-1)
    cost = -z.log() if loss == "cross-entropy" else -z.log() + 2 * (1 - z)
    return (y * cost).sum(-1)
