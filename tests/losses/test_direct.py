"""The direct formula for many classes: where it holds, where it hands over, and its derivatives."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fenchel import FocalLoss, PolyLoss, derive
from fenchel.losses import CrossEntropy, DerivedLoss, GeneralizedCrossEntropy, LabelSmoothing, Loss

CLASSES = 60


def poly(h: Tensor, y: Tensor) -> Tensor:
    return -(y * h.log_softmax(-1)).sum(-1) + 6 * (1 - (y * h.softmax(-1)).sum(-1))


def focal(h: Tensor, y: Tensor) -> Tensor:
    log_z = h.log_softmax(-1)
    return -(y * (1 - log_z.exp()) ** 2 * log_z).sum(-1)


PAIRS: list[tuple[Loss, Callable[[], DerivedLoss]]] = [
    (CrossEntropy(), lambda: derive(lambda h, y: -(y * h.log_softmax(-1)).sum(-1))),
    (
        LabelSmoothing(smoothing=0.1),
        lambda: derive(f=LabelSmoothing(smoothing=0.1).f, g=LabelSmoothing(smoothing=0.1).g),
    ),
    (PolyLoss(epsilon=6.0), lambda: derive(poly)),
    (PolyLoss(epsilon=6.0), lambda: derive(f=PolyLoss(epsilon=6.0).f, g=PolyLoss(epsilon=6.0).g)),
    (FocalLoss(gamma=2.0), lambda: derive(focal)),
    (
        GeneralizedCrossEntropy(q=0.7),
        lambda: derive(lambda h, y: (y * (1 - h.softmax(-1) ** 0.7)).sum(-1) / 0.7),
    ),
]


@pytest.mark.parametrize(
    ("closed", "make"), PAIRS, ids=[str(pair[0]) + str(i) for i, pair in enumerate(PAIRS)]
)
def test_direct_label_objective_and_gradients_equal_the_closed_form(
    closed: Loss, make: Callable[[], DerivedLoss]
) -> None:
    derived = make()
    assert "O(C)" in derived.findings(CLASSES).solver
    h = 3 * torch.randn(1200, CLASSES, dtype=torch.float64)  # more than one part
    weights = torch.randn_like(h)
    for function in ("label", "conjugate"):
        gradients = []
        for loss in (closed, derived):
            point = h.clone().requires_grad_()
            value = getattr(loss, function)(point)
            weight = weights if function == "label" else weights[:, 0]
            gradients += [value.detach(), torch.autograd.grad(value, point, weight)[0]]
        torch.testing.assert_close(gradients[2], gradients[0], rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(gradients[3], gradients[1], rtol=1e-7, atol=1e-8)


def test_saturated_samples_are_handed_to_the_slower_way() -> None:
    derived, closed = derive(focal), FocalLoss(gamma=2.0)
    h = torch.randn(4, CLASSES, dtype=torch.float64)
    h[1, 3], h[2, 5] = 20.0, 60.0
    torch.testing.assert_close(derived.label(h), closed.label(h), rtol=1e-6, atol=1e-9)
    point, other = h.clone().requires_grad_(), h.clone().requires_grad_()
    (slope,) = torch.autograd.grad(derived.conjugate(point).sum(), point)
    (expected,) = torch.autograd.grad(closed.conjugate(other).sum(), other)
    torch.testing.assert_close(slope, expected, rtol=1e-6, atol=1e-9)


def test_objective_of_a_recognised_loss_can_be_differentiated_twice() -> None:
    derived, closed = derive(poly), PolyLoss(epsilon=6.0)
    h = torch.randn(3, CLASSES, dtype=torch.float64)
    found = []
    for loss in (closed, derived):
        point = h.clone().requires_grad_()
        (slope,) = torch.autograd.grad(loss.conjugate(point).sum(), point, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), point)[0])
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=1e-9)


def test_loss_of_another_form_is_not_taken_for_direct() -> None:
    spherical = derive(
        lambda h, y: -(y * torch.nn.functional.normalize(h.softmax(-1), dim=-1)).sum(-1)
    )
    assert "GMRES" in spherical.findings(CLASSES).solver
