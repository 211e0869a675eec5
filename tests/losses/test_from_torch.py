"""What people train with in torch, against torch itself and a dense solve."""

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fenchel.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    LabelSmoothing,
    SquaredLoss,
    from_torch,
)

CLASSES = 4
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.8])
OTHER = torch.tensor([3.0, 0.4, 1.0, 1.7])

LossFunction = Callable[[Tensor, Tensor], Tensor]


def mixed(hard: LossFunction) -> LossFunction:
    """sum_k y_k L(h, e_k) of a loss that takes class indices and gives one value per sample."""

    def soft(h: Tensor, y: Tensor) -> Tensor:
        corners = [
            hard(h, torch.full_like(h[:, 0], k, dtype=torch.long)) for k in range(h.shape[-1])
        ]
        return (y * torch.stack(corners, dim=-1)).sum(-1)

    return soft


def negative_log_likelihood(h: Tensor, k: Tensor, weight: Tensor | None = None) -> Tensor:
    return F.nll_loss(h.log_softmax(-1), k, weight=weight, reduction="none")


@dataclass(frozen=True)
class Case:
    """A loss of torch, the same as a function of soft labels, and what it should become."""

    module: nn.Module
    function: LossFunction
    expected: object
    factor: float = 1.0
    """Our value over torch's."""
    target_term: Callable[[Tensor], Tensor] | None = None

    def __str__(self) -> str:
        return str(self.expected)


def wide(weight: Tensor) -> Tensor:
    return weight.double()


CASES = [
    Case(nn.CrossEntropyLoss(), F.cross_entropy, CrossEntropy()),
    Case(
        nn.CrossEntropyLoss(label_smoothing=0.2),
        functools.partial(F.cross_entropy, label_smoothing=0.2),
        LabelSmoothing(smoothing=0.2),
    ),
    Case(
        nn.CrossEntropyLoss(weight=WEIGHT),
        functools.partial(F.cross_entropy, weight=wide(WEIGHT)),
        "DerivedLoss(CrossEntropyLoss(weight of 4 classes))",
    ),
    Case(
        nn.CrossEntropyLoss(weight=WEIGHT, label_smoothing=0.2),
        functools.partial(F.cross_entropy, weight=wide(WEIGHT), label_smoothing=0.2),
        "DerivedLoss(CrossEntropyLoss(weight of 4 classes, label_smoothing=0.2))",
    ),
    Case(nn.NLLLoss(), mixed(negative_log_likelihood), CrossEntropy()),
    Case(
        nn.NLLLoss(weight=WEIGHT),
        mixed(functools.partial(negative_log_likelihood, weight=wide(WEIGHT))),
        "DerivedLoss(NLLLoss(weight of 4 classes))",
    ),
    Case(
        nn.BCEWithLogitsLoss(),
        F.binary_cross_entropy_with_logits,
        BinaryCrossEntropy(),
        factor=CLASSES,
    ),
    Case(
        nn.BCEWithLogitsLoss(pos_weight=WEIGHT),
        functools.partial(F.binary_cross_entropy_with_logits, pos_weight=wide(WEIGHT)),
        "DerivedLoss(BCEWithLogitsLoss(pos_weight of 4 classes))",
        factor=CLASSES,
    ),
    Case(
        nn.BCEWithLogitsLoss(weight=torch.tensor([3.0]), pos_weight=torch.tensor(2.0)),
        functools.partial(
            F.binary_cross_entropy_with_logits,
            weight=torch.full((CLASSES,), 3.0, dtype=torch.float64),
            pos_weight=torch.full((CLASSES,), 2.0, dtype=torch.float64),
        ),
        "DerivedLoss(BCEWithLogitsLoss(weight=3, pos_weight=2))",
        factor=CLASSES,
    ),
    Case(
        nn.BCEWithLogitsLoss(weight=WEIGHT, pos_weight=OTHER),
        functools.partial(
            F.binary_cross_entropy_with_logits, weight=wide(WEIGHT), pos_weight=wide(OTHER)
        ),
        "DerivedLoss(BCEWithLogitsLoss(weight of 4 classes, pos_weight of 4 classes))",
        factor=CLASSES,
    ),
    Case(
        nn.MultiLabelSoftMarginLoss(),
        F.multilabel_soft_margin_loss,
        BinaryCrossEntropy(),
        factor=CLASSES,
    ),
    Case(
        nn.MultiLabelSoftMarginLoss(weight=WEIGHT),
        functools.partial(F.multilabel_soft_margin_loss, weight=wide(WEIGHT)),
        "DerivedLoss(MultiLabelSoftMarginLoss(weight of 4 classes))",
        factor=CLASSES,
    ),
    Case(
        nn.MSELoss(),
        F.mse_loss,
        SquaredLoss(),
        factor=CLASSES / 2,
        target_term=lambda y: y.square().mean(),
    ),
    Case(
        nn.MultiMarginLoss(p=2),
        mixed(functools.partial(F.multi_margin_loss, p=2, reduction="none")),
        "DerivedLoss(MultiMarginLoss(p=2, margin=1))",
    ),
    Case(
        nn.MultiMarginLoss(p=2, margin=1.5, weight=WEIGHT),
        mixed(
            functools.partial(
                F.multi_margin_loss, p=2, margin=1.5, weight=wide(WEIGHT), reduction="none"
            )
        ),
        "DerivedLoss(MultiMarginLoss(weight of 4 classes, p=2, margin=1.5))",
    ),
    Case(
        nn.PoissonNLLLoss(),
        functools.partial(F.poisson_nll_loss, reduction="sum"),
        "DerivedLoss(PoissonNLLLoss)",
    ),
]

every_case = pytest.mark.parametrize("case", CASES, ids=str)


def scores(rows: int = 6) -> Tensor:
    return torch.randn(rows, CLASSES, dtype=torch.float64)


@every_case
def test_each_loss_becomes_what_it_is(case: Case) -> None:
    loss = from_torch(case.module)
    assert repr(loss) == str(case.expected)
    if not isinstance(case.expected, str):
        assert loss == case.expected


@every_case
def test_value_is_that_of_torch_up_to_the_factor(case: Case) -> None:
    loss = from_torch(case.module)
    h = scores()
    corners = torch.eye(CLASSES, dtype=h.dtype)[torch.arange(len(h)) % CLASSES]
    for y in (corners, scores().softmax(-1)):
        expected = [case.function(h[i : i + 1], y[i : i + 1]).sum() for i in range(len(h))]
        torch.testing.assert_close(loss(h, y), case.factor * torch.stack(expected))


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in CASES
        if isinstance(case.module, nn.CrossEntropyLoss | nn.NLLLoss | nn.MultiMarginLoss)
    ],
    ids=str,
)
def test_value_at_class_indices_is_that_of_the_module(case: Case) -> None:
    module = copy.deepcopy(case.module).double()
    module.reduction = "none"
    h, k = scores(), torch.arange(6) % CLASSES
    given = h.log_softmax(-1) if isinstance(module, nn.NLLLoss) else h
    torch.testing.assert_close(from_torch(case.module)(h, k), module(given, k))


@every_case
def test_label_and_objective_agree_with_a_dense_solve(
    case: Case, oracle: Callable[..., Any]
) -> None:
    loss = from_torch(case.module)
    exact = oracle(case.function, case.target_term)
    h = scores()
    label = loss.label(h)
    torch.testing.assert_close(label, torch.stack([exact.label(row) for row in h]))
    objective = torch.stack([exact.objective(row) for row in h])
    torch.testing.assert_close(loss.conjugate(h), case.factor * objective, atol=1e-12, rtol=1e-9)
    point = h.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss.conjugate(point).sum(), point)
    direction = torch.randn(CLASSES, dtype=h.dtype)
    moved = torch.stack([exact.directional_derivative(row, direction) for row in h])
    torch.testing.assert_close(slope @ direction, case.factor * moved, atol=1e-7, rtol=1e-6)


@every_case
def test_label_makes_the_loss_of_torch_stationary(case: Case, oracle: Callable[..., Any]) -> None:
    h = 3 * scores()
    label = from_torch(case.module).label(h)
    exact = oracle(case.function)
    left = torch.stack([exact.slope(row, y) for row, y in zip(h, label, strict=True)])
    elsewhere = torch.stack([exact.slope(row, y) for row, y in zip(h, label.flip(-1), strict=True)])
    assert left.abs().max() < 1e-10
    assert elsewhere.abs().max() > 1e-3


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("classes", [5, 100, 1000])
def test_class_weights_divide_the_probabilities(classes: int, smoothing: float) -> None:
    weight = 1 + torch.linspace(0, 9, classes).sin() / 2
    loss = from_torch(nn.CrossEntropyLoss(weight=weight, label_smoothing=smoothing))
    h = 3 * torch.randn(5, classes)
    z = h.softmax(-1)
    total = (z / weight).sum(-1, keepdim=True)
    expected = (z / weight / total - smoothing / classes) / (1 - smoothing)
    torch.testing.assert_close(loss.label(h), expected)
    entropy = CrossEntropy().conjugate(h)
    torch.testing.assert_close(loss.conjugate(h), entropy / total[:, 0])


@pytest.mark.parametrize("classes", [2, 30, 100])
def test_label_of_the_squared_margin_is_a_distribution(classes: int) -> None:
    loss = from_torch(nn.MultiMarginLoss(p=2))
    h = torch.randn(20, classes, dtype=torch.float64)
    h[0, 0] = h[0].max() + 1.5  # beyond the margin: nothing is left to learn
    label = loss.label(h)
    torch.testing.assert_close(label.sum(-1), torch.ones_like(h[:, 0]))
    assert label.min() > -1e-9
    torch.testing.assert_close(label[0, 0], torch.ones_like(label[0, 0]))
    assert loss.conjugate(h)[0].abs() < 1e-9
    assert loss.conjugate(h)[1:].max() > 1e-3
    k = torch.arange(20) % classes
    expected = F.multi_margin_loss(h, k, p=2, reduction="none")
    torch.testing.assert_close(loss(h, k), expected)
