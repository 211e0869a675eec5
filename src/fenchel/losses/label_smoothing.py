"""Cross-entropy with smoothed labels: the entropy again, at a sharper label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Tensor

from fenchel.losses.base import Loss, require_range
from fenchel.names import register


@final
@register("label-smoothing")
@dataclass(frozen=True, kw_only=True)
class LabelSmoothing(Loss):
    """L = CE(h, (1-s) y + s/C), so f = logsumexp(h) - (s/C) sum h and g = (1-s) h, 0 <= s < 1.

    The label is (z - s/C) / (1-s), which undoes the smoothing (and may leave [0, 1]); the objective
    is the softmax entropy.

    >>> import torch
    >>> LabelSmoothing(smoothing=0.3).label(torch.tensor([2.0, 0.0, 0.0]))
    tensor([0.9814, 0.0093, 0.0093])
    """

    smoothing: float = 0.1

    def __post_init__(self) -> None:
        require_range(
            "LabelSmoothing", "smoothing", self.smoothing, 0 <= self.smoothing < 1, "0 <= s < 1"
        )

    def f(self, h: Tensor) -> Tensor:
        return h.logsumexp(-1) - self.smoothing * h.mean(-1)

    def g(self, h: Tensor) -> Tensor:
        return (1 - self.smoothing) * h

    def _label(self, h: Tensor) -> Tensor:
        return (h.softmax(-1) - self.smoothing / h.shape[-1]) / (1 - self.smoothing)

    def _conjugate(self, h: Tensor) -> Tensor:
        log_z = h.log_softmax(-1)
        return -(log_z.exp() * log_z).sum(-1)
