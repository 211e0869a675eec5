"""Sparsemax: a Fenchel-Young loss whose label has exact zeros."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fenchel.losses.base import Loss
from fenchel.names import register


@final
@register("sparsemax")
@dataclass(frozen=True, kw_only=True)
class Sparsemax(Loss):
    """L = Omega*(h) + Omega(y) - <y, h> with Omega(p) = 1/2 ||p||^2 on the simplex.

    f = Omega* and g = identity; Omega(y) is a term in y alone. The label is the projection of h
    onto the simplex, the objective -1/2 ||label||^2.

    Reference: Martins and Astudillo, "From Softmax to Sparsemax", ICML 2016.

    >>> Sparsemax().label(torch.tensor([0.5, 0.0, -2.0]))
    tensor([0.7500, 0.2500, 0.0000])
    """

    def f(self, h: Tensor) -> Tensor:
        p = self._label(h)
        return (p * h).sum(-1) - p.square().sum(-1) / 2

    def g(self, h: Tensor) -> Tensor:
        return h

    def label_term(self, y: Tensor) -> Tensor:
        return y.square().sum(-1) / 2

    def _label(self, h: Tensor) -> Tensor:
        """max(h - tau, 0), with tau from the support that sorting finds."""
        h = h - h.amax(-1, keepdim=True).detach()
        with torch.no_grad():
            # No class more than 1 below the largest is in the support; the clamp keeps sums small.
            ordered = h.clamp_min(-1).sort(dim=-1, descending=True).values
            rank = torch.arange(1, h.shape[-1] + 1, device=h.device, dtype=h.dtype)
            inside = rank * ordered > ordered.cumsum(-1) - 1
            size = inside.sum(-1, keepdim=True)
            support = h >= ordered.gather(-1, size - 1)
        # Ties at the edge of the support may join it: their share is zero either way.
        total = h.masked_fill(~support, 0.0).sum(-1, keepdim=True)
        threshold = (total - 1) / support.sum(-1, keepdim=True)
        return (h - threshold).clamp_min(0)

    def _conjugate(self, h: Tensor) -> Tensor:
        return -self._label(h).square().sum(-1) / 2
