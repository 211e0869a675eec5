"""What derive refuses, and in which words."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fenchel import derive
from fenchel.losses import SingularLossError, UnsuitableLossError

LossFunction = Callable[[Tensor, Tensor], Tensor]


def log_z(h: Tensor) -> Tensor:
    return h.log_softmax(-1)


def weston_watkins(h: Tensor, y: Tensor) -> Tensor:
    margins = F.relu(1 + h[:, None, :] - h[:, :, None]).sum(-1) - 1
    return (y * margins).sum(-1)


def crammer_singer(h: Tensor, y: Tensor) -> Tensor:
    others = 1 - torch.eye(h.shape[-1]).to(h)
    return (y * ((others + h[:, None, :]).amax(-1) - h)).sum(-1)


def margins_by_torch(h: Tensor, y: Tensor) -> Tensor:
    every = torch.arange(h.shape[-1]).repeat(len(h))
    rows = h.repeat_interleave(h.shape[-1], 0)
    return (y * F.multi_margin_loss(rows, every, p=2, reduction="none").reshape(h.shape)).sum(-1)


def without_gradient(h: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        return F.cross_entropy(h, y, reduction="none")


NOT_AFFINE = {
    "huber": lambda h, y: F.huber_loss(h, y, reduction="none"),
    "soft margin": lambda h, y: F.soft_margin_loss(h, y, reduction="none"),
    "margin inside": lambda h, y: F.cross_entropy(h - 2 * y, y, reduction="none"),
    "focal by the mean probability": lambda h, y: (
        -((1 - (h.softmax(-1) * y).sum(-1)) ** 2) * (y * log_z(h)).sum(-1)
    ),
    "argmax of the target": lambda h, y: F.cross_entropy(h, y.argmax(-1), reduction="none"),
    "absolute differences": lambda h, y: (h.softmax(-1) - y).abs().sum(-1),
    "log cosh": lambda h, y: (h - y).cosh().log().sum(-1),
}

NO_GRADIENT = {
    "mean absolute error": lambda h, y: 1 - (y * h.softmax(-1)).sum(-1),
    "dice": lambda h, y: 1 - 2 * (h.softmax(-1) * y).sum(-1) / (h.softmax(-1).sum(-1) + y.sum(-1)),
    "weston-watkins hinge": weston_watkins,
    "crammer-singer hinge": crammer_singer,
    "binary hinge": lambda h, y: (y * F.relu(1 - h) + (1 - y) * F.relu(1 + h)).sum(-1),
    "perceptron": lambda h, y: h.amax(-1) - (y * h).sum(-1),
    "normalised cross-entropy": lambda h, y: (y * log_z(h)).sum(-1) / log_z(h).sum(-1),
}

OTHERS = {
    "ignores the target": (lambda h, y: -(h.softmax(-1) * log_z(h)).sum(-1), "ignores its target"),
    "ignores the logits": (lambda h, y: y.square().sum(-1), "ignores its logits"),
    "mixes samples": (lambda h, y: -(y * log_z(h - h.mean(0))).sum(-1), "other samples"),
    "random": (lambda h, y: -(y * log_z(h + torch.randn_like(h))).sum(-1), "random draws"),
    "two values": (lambda h, y: (h * y)[:, :2], r"one value per sample \(3,\).*got \(3, 2\)"),
    "a number": (lambda h, y: float(F.cross_entropy(h, y)), "return a tensor; got float"),
    "integer targets": (lambda h, y: F.nll_loss(log_z(h), y), "two float tensors of one shape"),
    "gathers": (lambda h, y: -log_z(h).gather(-1, y[:, None]), "two float tensors of one shape"),
    "not finite": (lambda h, y: (y * (y.log() - log_z(h))).sum(-1), "torch.xlogy"),
    "differentiable once": (margins_by_torch, "twice differentiable.*multi_margin"),
    "no gradient": (without_gradient, "carry a gradient"),
    "in place": (lambda h, y: -(y.mul_(2) * log_z(h)).sum(-1), "in-place"),
    "half precision": (lambda h, y: F.cross_entropy(h.half(), y.half()), "half precision"),
}

SINGULAR = {
    "one class of the target": lambda h, y: -y[:, 0] * log_z(h)[:, 0],
    "two scores": lambda h, y: F.softplus(h[:, 0] - h[:, 1]) - y[:, 0] * (h[:, 0] - h[:, 1]),
    "outside the range of the labels": lambda h, y: (
        -(y * log_z(h)).sum(-1) + 0.05 * h.square().sum(-1)
    ),
}


@pytest.mark.parametrize("name", NOT_AFFINE)
def test_loss_not_affine_in_its_target_is_refused(name: str) -> None:
    with pytest.raises(UnsuitableLossError, match="not affine in the target"):
        derive(NOT_AFFINE[name])


@pytest.mark.parametrize("name", NO_GRADIENT)
def test_loss_whose_objective_is_flat_is_refused(name: str) -> None:
    with pytest.raises(UnsuitableLossError, match=r"no gradient.*adapt nothing, silently"):
        derive(NO_GRADIENT[name])


@pytest.mark.parametrize("name", OTHERS)
def test_function_that_is_no_such_loss_is_refused(name: str) -> None:
    function, message = OTHERS[name]
    with pytest.raises(UnsuitableLossError, match=message):
        derive(function)


@pytest.mark.parametrize("classes", [10, 50])
@pytest.mark.parametrize("name", SINGULAR)
def test_singular_loss_is_refused(name: str, classes: int) -> None:
    with pytest.raises(SingularLossError, match=r"no unique solution|no label makes"):
        derive(SINGULAR[name], classes=classes)


@pytest.mark.parametrize("arguments", [{}, {"f": torch.sum}, {"g": torch.sum}])
def test_derive_takes_a_function_or_a_pair(arguments: dict[str, LossFunction]) -> None:
    with pytest.raises(TypeError, match="both f= and g="):
        derive(**arguments)
    with pytest.raises(TypeError, match="either one function"):
        derive(lambda h, y: h, f=torch.sum, g=torch.sum)
