"""The losses whose labels are measured, in closed form, derived from a function, and solved densely."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import fenchel
from common.steps import EPSILON, dense_conjugate
from fenchel.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    FocalLoss,
    GeneralizedCrossEntropy,
    LabelSmoothing,
    Loss,
    PolyLoss,
    SquaredLoss,
)

LABEL_CLASSES: tuple[int, ...] = (1000, 21_841)


@dataclass(frozen=True)
class Typed:
    """A loss of the library beside the function that a user would type."""

    closed: Loss
    function: Callable[[Tensor, Tensor], Tensor]


def cross_entropy(h: Tensor, y: Tensor) -> Tensor:
    return -(y * h.log_softmax(-1)).sum(-1)


def label_smoothing(h: Tensor, y: Tensor) -> Tensor:
    return -((0.9 * y + 0.1 / h.shape[-1]) * h.log_softmax(-1)).sum(-1)


def poly(h: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(h, y) + EPSILON * (1 - (y * h.softmax(-1)).sum(-1))


def focal(h: Tensor, y: Tensor) -> Tensor:
    log_z = h.log_softmax(-1)
    return -(y * (1 - log_z.exp()) ** 2 * log_z).sum(-1)


def generalized(h: Tensor, y: Tensor) -> Tensor:
    return (y * (1 - h.softmax(-1) ** 0.7)).sum(-1) / 0.7


def squared(h: Tensor, y: Tensor) -> Tensor:
    return (h - y).square().sum(-1) / 2


def binary(h: Tensor, y: Tensor) -> Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(h, y, reduction="none")


BOUNDED = {
    "cross-entropy": Typed(CrossEntropy(), cross_entropy),
    "label smoothing": Typed(LabelSmoothing(smoothing=0.1), label_smoothing),
    "poly": Typed(PolyLoss(epsilon=EPSILON), poly),
    "focal": Typed(FocalLoss(gamma=2.0), focal),
}
"""Derived within 20 times the closed form's time and 5 times its memory; the others as they are."""
TYPED = BOUNDED | {
    "generalised cross-entropy": Typed(GeneralizedCrossEntropy(q=0.7), generalized),
    "squared": Typed(SquaredLoss(), squared),
    "binary cross-entropy": Typed(BinaryCrossEntropy(), binary),
}
ROW_NAMES: tuple[str, ...] = tuple(TYPED)


LABEL, VALUE, BOTH = "label", "objective", "objective and gradient"
"""What is computed: the label alone, the objective, or the objective and its gradient."""


def label_pass(
    loss: str, way: str, classes: int, batch: int, what: str = BOTH
) -> Callable[[], Tensor]:
    """One computation on a batch of random logits; the dense way has no label of its own."""
    typed = TYPED[loss]
    chosen = fenchel.derive(typed.function) if way == "derived" else typed.closed
    function = dense_conjugate if way == "dense" else chosen.conjugate
    if what == LABEL:
        function = chosen.label
    h = torch.randn(batch, classes, generator=torch.Generator().manual_seed(classes))

    def run() -> Tensor:
        if what != BOTH:
            with torch.no_grad():
                return function(h)
        point = h.clone().requires_grad_()
        return torch.autograd.grad(function(point).mean(), point)[0]

    return run
