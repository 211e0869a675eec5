"""Whether following an objective ends somewhere."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fenchel import derive
from fenchel.losses import LOSSES, ExponentialLoss, Loss, Signed, SquaredLoss, from_torch


def least(loss: Loss, size: float) -> float:
    """The least objective among many scores of one size, in all directions."""
    classes = 1 if isinstance(loss.labels, Signed) else 5
    h = size * torch.randn(500, classes, dtype=torch.float64)
    return float(loss.conjugate(h).min())


@pytest.mark.parametrize("cls", LOSSES.values(), ids=LOSSES)
def test_every_listed_loss_knows_whether_its_objective_is_bounded(cls: type[Loss]) -> None:
    loss = cls()
    still_falling = least(loss, 1e4) < least(loss, 1e2) - 1e-3
    assert loss.objective_is_bounded is not still_falling
    assert cls.objective_is_bounded is (cls is not SquaredLoss)


@pytest.mark.parametrize("cls", LOSSES.values(), ids=LOSSES)
def test_derived_twin_of_a_listed_loss_finds_out(cls: type[Loss]) -> None:
    loss = cls()
    classes = 1 if cls is ExponentialLoss else None
    twin = derive(lambda h, y: loss(h, y), labels=loss.labels, classes=classes)
    assert twin.objective_is_bounded is cls.objective_is_bounded


def log_z(h: Tensor) -> Tensor:
    return h.log_softmax(-1)


BOUNDED = {
    "cross-entropy": nn.CrossEntropyLoss(),
    "cross-entropy in single precision": lambda h, y: F.cross_entropy(h.float(), y.float()),
    "temperature": lambda h, y: -(y * log_z(h / 100)).sum(-1),
    "falling ever more slowly": lambda h, y: -(y * log_z(h / 500)).sum(-1),
    "generalised cross-entropy": lambda h, y: (y * (1 - h.softmax(-1) ** 0.7) / 0.7).sum(-1),
    "poly": lambda h, y: (y * (6 * (1 - h.softmax(-1)) - log_z(h))).sum(-1),
    "smoothed poly": lambda h, y: (
        F.cross_entropy(h, y, label_smoothing=0.1, reduction="none")
        + 2 * (1 - (y * h.softmax(-1)).sum(-1))
    ),
    "brier": lambda h, y: (h.softmax(-1) - y).square().sum(-1),
    "probabilities that saturate": lambda h, y: F.binary_cross_entropy(
        h.sigmoid(), y, reduction="none"
    ),
    "cosh minus sinh": lambda h, y: (h.cosh() - y * h.sinh()).sum(-1),
}
UNBOUNDED = {
    "squares": lambda h, y: (h - y).square().sum(-1) / 2,
    "mean squares": nn.MSELoss(),
    "squares in single precision": lambda h, y: (h.float() - y.float()).square().sum(-1),
    "small squares": lambda h, y: 1e-5 * (h - y).square().sum(-1),
    "cross-entropy and squares": lambda h, y: (
        -(y * log_z(h)).sum(-1) + 0.3 * (h - y).square().sum(-1)
    ),
    "poisson, which overflows": nn.PoissonNLLLoss(reduction="none"),
    "falling as a logarithm": lambda h, y: (-torch.log1p(h * h) / 2 - y * h).sum(-1),
    "falling as size times its logarithm": lambda h, y: ((1 + h * h).sqrt() - y * h.asinh()).sum(
        -1
    ),
}


@pytest.mark.parametrize("name", [*BOUNDED, *UNBOUNDED])
def test_derived_objective_is_followed_to_large_scores(name: str) -> None:
    loss = derive((BOUNDED | UNBOUNDED)[name])
    assert loss.objective_is_bounded is (name in BOUNDED)


@pytest.mark.parametrize(
    "module",
    [
        nn.CrossEntropyLoss(weight=torch.linspace(0.5, 2, 50), label_smoothing=0.1),
        nn.BCEWithLogitsLoss(pos_weight=torch.linspace(0.5, 2, 5)),
        nn.MultiMarginLoss(p=2),
    ],
    ids=["cross-entropy", "binary", "margin"],
)
def test_weighted_losses_of_torch_are_bounded(module: nn.Module) -> None:
    loss = from_torch(module)
    assert loss is not None
    assert loss.objective_is_bounded


def refuses_large(h: Tensor, y: Tensor) -> Tensor:
    if bool((h.abs() > 50).any()):
        raise ArithmeticError("too large")
    return (h - y).square().sum(-1)


def warns(h: Tensor, y: Tensor) -> Tensor:
    if bool((h.abs() > 50).any()):
        warnings.warn("large scores", stacklevel=2)
    return (h - y).square().sum(-1)


@pytest.mark.parametrize(("function", "bounded"), [(refuses_large, True), (warns, False)])
def test_an_opinion_neither_raises_nor_warns(
    function: Callable[[Tensor, Tensor], Tensor], bounded: bool
) -> None:
    assert derive(function).objective_is_bounded is bounded


def test_an_opinion_is_formed_once() -> None:
    calls = 0

    def counted(h: Tensor, y: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return -(y * log_z(h)).sum(-1)

    loss = derive(counted)
    assert loss.objective_is_bounded
    before = calls
    assert loss.objective_is_bounded
    assert calls == before
