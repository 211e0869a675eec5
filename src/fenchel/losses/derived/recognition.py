"""Recognising a loss of the true class's probability in a function, to solve it in O(C)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fenchel.losses.derived.implicit import probe_logits
from fenchel.losses.derived.reading import LossFunction
from fenchel.losses.probability import LogitPenaltyLoss, elementwise_derivative


@final
@dataclass(frozen=True, kw_only=True)
class TwoClassPenalty(LogitPenaltyLoss):
    """phi of a recognised loss, read off its value at two classes with logits (r, 0)."""

    name: ClassVar[str] = "recognised"
    value: LossFunction
    """The loss at one-hot labels, (..., C), (..., C) -> (...), without terms in the label alone."""

    def of_logit(self, r: Tensor) -> Tensor:
        pair = torch.stack([r, torch.zeros_like(r)], dim=-1)
        first = torch.zeros_like(pair)
        first[..., 0] = 1
        return self.value(pair, first)


def recognise(
    value: LossFunction, expanded: LossFunction, classes: int, device: torch.device
) -> TwoClassPenalty | None:
    """The scalar function, if L(h, e_k) is one decreasing function of z_k here and at two classes.

    `value` is for the function to return, `expanded` the same as f(h) - <y, g(h)> for (N, C).
    """
    if classes < 2:
        return None
    penalty = TwoClassPenalty(value=value)
    z = torch.tensor([0.01, 0.1, 0.4, 0.7, 0.97], dtype=torch.float64, device=device)
    try:
        expected = penalty.of_logit(z.logit())
        slope = elementwise_derivative(
            penalty.of_logit, torch.linspace(-15, 15, 61, dtype=torch.float64, device=device)
        )
    except (RuntimeError, ValueError, IndexError, TypeError):
        return None
    if not bool(expected.isfinite().all()) or not bool((slope < 0).all()):
        return None
    for true_class in {0, classes // 2, classes - 1}:
        h = _logits_with_probability(z, true_class, classes)
        label = torch.zeros_like(h)
        label[:, true_class] = 1
        if not torch.allclose(expanded(h, label), expected, rtol=1e-9, atol=1e-9):
            return None
    return penalty


def _logits_with_probability(z: Tensor, true_class: int, classes: int) -> Tensor:
    """Logits whose softmax is `z` at the true class and arbitrary elsewhere, shifted at will."""
    rest = probe_logits(classes, rows=len(z)).to(z).roll(true_class, 0)
    rest[:, true_class] = -torch.inf
    h = rest.log_softmax(-1) + torch.log1p(-z)[:, None]
    h[:, true_class] = z.log()
    return h + torch.linspace(-2, 2, len(z)).to(z)[:, None]
