"""The ten losses typed as plain functions, in the ways in which people type them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fenchel import derive
from fenchel.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    Entmax15,
    ExponentialLoss,
    FocalLoss,
    GeneralizedCrossEntropy,
    LabelSmoothing,
    Loss,
    PolyLoss,
    Sparsemax,
    SquaredLoss,
)

LossFunction = Callable[[Tensor, Tensor], Tensor]


def sparse_threshold(x: Tensor, power: int) -> Tensor:
    """tau with sum(max(x - tau, 0)^power) = 1: bisection, then a Newton step that carries gradients."""
    with torch.no_grad():
        low, high = x.amax(-1, keepdim=True) - 1, x.amax(-1, keepdim=True)
        for _ in range(60):
            middle = (low + high) / 2
            above = (x - middle).clamp_min(0).pow(power).sum(-1, keepdim=True) > 1
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    for _ in range(3):
        rest = (x - low).clamp_min(0)
        slope = power * (rest ** (power - 1) * (rest > 0)).sum(-1, keepdim=True)
        low = low + (rest.pow(power).sum(-1, keepdim=True) - 1) / slope
    return low


def sparsemax_loss(h: Tensor, y: Tensor) -> Tensor:
    p = (h - sparse_threshold(h, 1)).clamp_min(0)
    return (p * h).sum(-1) - p.square().sum(-1) / 2 + y.square().sum(-1) / 2 - (y * h).sum(-1)


def sparsemax_loss_as_published(h: Tensor, y: Tensor) -> Tensor:
    tau = sparse_threshold(h, 1)
    inside = (h > tau).to(h.dtype)
    return -(y * h).sum(-1) + (inside * (h**2 - tau**2)).sum(-1) / 2 + (y**2).sum(-1) / 2


def entmax15_loss(h: Tensor, y: Tensor) -> Tensor:
    p = (h / 2 - sparse_threshold(h / 2, 2)).clamp_min(0) ** 2
    omega_p = (4 / 3) * (p * p.clamp_min(1e-60).sqrt()).sum(-1)
    omega_y = (4 / 3) * (y * y.sqrt()).sum(-1)
    return (p * h).sum(-1) - omega_p + omega_y - (y * h).sum(-1)


def focal_loss(h: Tensor, y: Tensor) -> Tensor:
    log_z = F.log_softmax(h, dim=-1)
    return -(y * (1 - log_z.exp()) ** 2 * log_z).sum(-1)


TYPED: list[tuple[Loss, str, LossFunction]] = [
    (CrossEntropy(), "log_softmax", lambda h, y: -(y * h.log_softmax(-1)).sum(-1)),
    (CrossEntropy(), "logsumexp", lambda h, y: h.logsumexp(-1) - (y * h).sum(-1)),
    (CrossEntropy(), "log of softmax", lambda h, y: -(y * h.softmax(-1).log()).sum(-1)),
    (CrossEntropy(), "per class", lambda h, y: -y * h.log_softmax(-1)),
    (CrossEntropy(), "functional", lambda h, y: F.cross_entropy(h, y, reduction="none")),
    (CrossEntropy(), "module, reduced", nn.CrossEntropyLoss()),
    (CrossEntropy(), "summed", nn.CrossEntropyLoss(reduction="sum")),
    (CrossEntropy(), "keepdim", lambda h, y: -(y * h.log_softmax(-1)).sum(-1, keepdim=True)),
    (LabelSmoothing(smoothing=0.1), "module", nn.CrossEntropyLoss(label_smoothing=0.1)),
    (
        LabelSmoothing(smoothing=0.1),
        "smoothed by hand",
        lambda h, y: -((0.9 * y + 0.1 / h.shape[-1]) * h.log_softmax(-1)).sum(-1),
    ),
    (
        LabelSmoothing(smoothing=0.1),
        "with logsumexp",
        lambda h, y: h.logsumexp(-1) - ((0.9 * y + 0.1 / h.shape[-1]) * h).sum(-1),
    ),
    (
        BinaryCrossEntropy(),
        "with logits",
        lambda h, y: F.binary_cross_entropy_with_logits(h, y, reduction="none"),
    ),
    (
        BinaryCrossEntropy(),
        "two logarithms",
        lambda h, y: -(y * F.logsigmoid(h) + (1 - y) * F.logsigmoid(-h)).sum(-1),
    ),
    (
        BinaryCrossEntropy(),
        "of sigmoid",
        lambda h, y: F.binary_cross_entropy(h.sigmoid(), y, reduction="none").sum(-1),
    ),
    (SquaredLoss(), "squared norm", lambda h, y: (h - y).square().sum(-1) / 2),
    (SquaredLoss(), "per score", lambda h, y: 0.5 * F.mse_loss(h, y, reduction="none")),
    (SquaredLoss(), "expanded", lambda h, y: (h * h / 2 - y * h).sum(-1)),
    (
        PolyLoss(epsilon=6.0),
        "as published",
        lambda h, y: (
            F.cross_entropy(h, y, reduction="none") + 6 * (1 - (y * h.softmax(-1)).sum(-1))
        ),
    ),
    (
        PolyLoss(epsilon=6.0),
        "as f and g",
        lambda h, y: h.logsumexp(-1) - (y * (h - 6 * (1 - h.softmax(-1)))).sum(-1),
    ),
    (
        PolyLoss(epsilon=6.0),
        "reduced",
        lambda h, y: (-(y * h.log_softmax(-1)) + 6 * y * (1 - h.softmax(-1))).sum(-1).mean(),
    ),
    (ExponentialLoss(), "cosh and sinh", lambda h, y: (h.cosh() - y * h.sinh()).sum(-1)),
    (
        ExponentialLoss(),
        "two weights",
        lambda h, y: (1 + y) / 2 * (-h).exp() + (1 - y) / 2 * h.exp(),
    ),
    (
        GeneralizedCrossEntropy(q=0.7),
        "powers",
        lambda h, y: (y * (1 - h.softmax(-1) ** 0.7) / 0.7).sum(-1),
    ),
    (
        GeneralizedCrossEntropy(q=0.7),
        "constant first",
        lambda h, y: 1 / 0.7 - (y * h.softmax(-1) ** 0.7).sum(-1) / 0.7,
    ),
    (FocalLoss(gamma=2.0), "log_softmax", focal_loss),
    (
        FocalLoss(gamma=2.0),
        "probabilities",
        lambda h, y: (y * -((1 - h.softmax(-1)) ** 2) * h.softmax(-1).log()).sum(-1),
    ),
    (Sparsemax(), "bisection", sparsemax_loss),
    (Sparsemax(), "as published", sparsemax_loss_as_published),
    (Entmax15(), "bisection", entmax15_loss),
]


def relative_gap(actual: Tensor, expected: Tensor) -> float:
    return float(((actual - expected).abs() / expected.abs().clamp_min(1)).max())


@pytest.mark.parametrize(
    ("loss", "function"),
    [pytest.param(loss, fn, id=f"{loss!r}-{way}") for loss, way, fn in TYPED],
)
@pytest.mark.parametrize(
    ("classes", "dtype", "tolerance"), [(10, torch.float64, 1e-8), (1000, torch.float32, 1e-4)]
)
def test_typed_loss_comes_out_equal_to_its_closed_form(
    loss: Loss, function: LossFunction, classes: int, dtype: torch.dtype, tolerance: float
) -> None:
    classes = 1 if isinstance(loss, ExponentialLoss) else classes
    h = (2 * torch.randn(4, classes, dtype=dtype)).requires_grad_()
    derived = derive(function)
    objective, expected = derived.conjugate(h), loss.conjugate(h)
    (slope,) = torch.autograd.grad(objective.sum(), h)
    (expected_slope,) = torch.autograd.grad(expected.sum(), h)
    assert relative_gap(derived.label(h).detach(), loss.label(h).detach()) < tolerance
    assert relative_gap(objective.detach(), expected.detach()) < tolerance
    assert relative_gap(slope, expected_slope) < tolerance
