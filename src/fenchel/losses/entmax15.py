"""1.5-entmax: between softmax and sparsemax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fenchel.losses.base import Loss
from fenchel.names import register


@final
@register("entmax15")
@dataclass(frozen=True, kw_only=True)
class Entmax15(Loss):
    """L = Omega*(h) + Omega(y) - <y, h> with Omega(p) = 4/3 sum_k p_k^1.5 on the simplex.

    f = Omega* and g = identity; Omega(y) is a term in y alone. The label is max(h/2 - tau, 0)^2 with
    tau such that it sums to one, the objective -Omega(label).

    Reference: Peters, Niculae and Martins, "Sparse Sequence-to-Sequence Models", ACL 2019.

    >>> Entmax15().label(torch.tensor([0.5, 0.0, -2.0]))
    tensor([0.6740, 0.3260, 0.0000])
    """

    def f(self, h: Tensor) -> Tensor:
        p = self._label(h)
        return (p * h).sum(-1) - self._omega(p)

    def g(self, h: Tensor) -> Tensor:
        return h

    def label_term(self, y: Tensor) -> Tensor:
        return self._omega(y)

    def _label(self, h: Tensor) -> Tensor:
        return self._root_of_label(h).square()

    def _conjugate(self, h: Tensor) -> Tensor:
        return -(self._root_of_label(h) ** 3).sum(-1) * (4 / 3)

    @staticmethod
    def _omega(p: Tensor) -> Tensor:
        return (p * p.sqrt()).sum(-1) * (4 / 3)

    @staticmethod
    def _root_of_label(h: Tensor) -> Tensor:
        """max(h/2 - tau, 0). On a known support of size n, tau = mean - sqrt((1 - n var) / n)."""
        x = (h - h.amax(-1, keepdim=True).detach()) / 2
        with torch.no_grad():
            # No class more than 1 below the largest is in the support; the clamp keeps sums small.
            ordered = x.clamp_min(-1).sort(dim=-1, descending=True).values
            rank = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)
            mean = ordered.cumsum(-1) / rank
            scatter = ordered.square().cumsum(-1) - rank * mean.square()
            tau = mean - ((1 - scatter) / rank).clamp_min(0).sqrt()
            size = (tau <= ordered).sum(-1, keepdim=True)
            support = x >= ordered.gather(-1, size - 1)
        count = support.sum(-1, keepdim=True)
        mean = x.masked_fill(~support, 0.0).sum(-1, keepdim=True) / count
        scatter = (x - mean).masked_fill(~support, 0.0).square().sum(-1, keepdim=True)
        # Positive on the true support; the floor only guards against rounding.
        spread = ((1 - scatter) / count).clamp_min(torch.finfo(x.dtype).tiny).sqrt()
        return (x - (mean - spread)).clamp_min(0)
