"""Binary cross-entropy over independent labels (logistic loss, multi-label classification)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor
from torch.nn import functional as F

from fenchel.losses.base import Loss
from fenchel.losses.labels import LabelSpace, YesOrNo
from fenchel.names import register


@final
@register("binary-cross-entropy")
@dataclass(frozen=True, kw_only=True)
class BinaryCrossEntropy(Loss):
    """L = sum_k softplus(h_k) - y_k h_k, so f = sum softplus and g = identity.

    The label is sigmoid(h), the objective the sum of the binary entropies.

    >>> import torch
    >>> BinaryCrossEntropy().label(torch.tensor([2.0, 0.0, -2.0]))
    tensor([0.8808, 0.5000, 0.1192])
    >>> BinaryCrossEntropy().conjugate(torch.tensor([2.0, 0.0, -2.0]))
    tensor(1.4238)
    """

    labels: ClassVar[LabelSpace] = YesOrNo()

    def f(self, h: Tensor) -> Tensor:
        return F.softplus(h).sum(-1)

    def g(self, h: Tensor) -> Tensor:
        return h

    def _label(self, h: Tensor) -> Tensor:
        return h.sigmoid()

    def _conjugate(self, h: Tensor) -> Tensor:
        return (h.sigmoid() * F.softplus(-h) + (-h).sigmoid() * F.softplus(h)).sum(-1)
