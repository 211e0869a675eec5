"""Functions that want the classes on an axis of their own."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fenchel import derive
from fenchel.losses import CrossEntropy, Loss, PolyLoss, UnsuitableLossError

SHAPES = {
    0: (10, 3),
    1: (3, 10),
    2: (3, 1, 10),
    3: (3, 1, 1, 10),
    -1: (3, 10),
    -2: (3, 10, 1),
    -3: (3, 10, 1, 1),
}
"""What a function sees of three samples of ten classes."""


@dataclass(frozen=True)
class Poly:
    """PolyLoss with the classes on an axis, returned in one of several forms."""

    dim: int
    form: str = "sample"
    epsilon: float = 6.0

    def __call__(self, h: Tensor, y: Tensor) -> Tensor:
        assert h.shape == y.shape
        assert h.ndim == len(SHAPES[self.dim])
        each = y * (self.epsilon * (1 - h.softmax(self.dim)) - h.log_softmax(self.dim))
        if self.form == "score":
            return each
        value = each.sum(self.dim, keepdim=self.form == "kept")
        return value.mean() if self.form == "reduced" else value


def images(classes: int) -> Tensor:
    return 2 * torch.randn(2, classes, 4, 3, dtype=torch.float64)


def assert_same(derived: Loss, expected: Loss, classes: int = 10) -> None:
    h = images(classes)
    y = h.flip(0).softmax(1)
    for ours, theirs in (
        (derived.label(h, dim=1), expected.label(h, dim=1)),
        (derived.conjugate(h, dim=1), expected.conjugate(h, dim=1)),
        (derived(h, y, dim=1), expected(h, y, dim=1)),
    ):
        assert ours.shape == theirs.shape
        assert (ours - theirs).abs().max() < 1e-10


@pytest.mark.parametrize("form", ["sample", "kept", "score", "reduced"])
@pytest.mark.parametrize("dim", SHAPES)
def test_function_of_any_axis_is_its_closed_form(dim: int, form: str) -> None:
    for classes in (3, 10, 40):
        assert_same(derive(Poly(dim, form), dim=dim), PolyLoss(epsilon=6.0), classes)


def per_pixel(h: Tensor, y: Tensor) -> Tensor:
    return -(y * h.log_softmax(1)).sum(1)


def images_only(h: Tensor, y: Tensor) -> Tensor:
    samples, _, height, width = h.shape
    return -(y * h.log_softmax(1)).sum(1).reshape(samples, height, width)


def classes_first(h: Tensor, y: Tensor) -> Tensor:
    return h.logsumexp(0) - (y * h).sum(0)


@pytest.mark.parametrize(
    ("function", "dim"),
    [(per_pixel, 1), (per_pixel, -3), (images_only, -3), (classes_first, 0)],
)
@pytest.mark.parametrize("classes", [2, 10, 40])
def test_cross_entropy_of_images_is_the_entropy_of_every_pixel(
    function: Callable[[Tensor, Tensor], Tensor], dim: int, classes: int
) -> None:
    derived = derive(function, dim=dim)
    assert_same(derived, CrossEntropy(), classes)
    assert repr(derived) == f"DerivedLoss({function.__name__})"


@pytest.mark.parametrize("dim", SHAPES)
def test_pair_of_formulas_may_want_another_axis(dim: int) -> None:
    def f(h: Tensor) -> Tensor:
        assert h.ndim == len(SHAPES[dim])
        return h.logsumexp(dim)

    derived = derive(f=f, g=lambda h: h - 6 * (1 - h.softmax(dim)), dim=dim)
    assert_same(derived, PolyLoss(epsilon=6.0))


@pytest.mark.parametrize("dim", SHAPES)
def test_function_sees_the_samples_in_the_shape_that_was_promised(dim: int) -> None:
    seen = []

    def function(h: Tensor, y: Tensor) -> Tensor:
        seen.append(tuple(h.shape))
        return Poly(dim)(h, y)

    derived = derive(function, dim=dim, classes=10)
    seen.clear()
    derived(torch.randn(3, 10), torch.randn(3, 10).softmax(-1))
    assert seen == [SHAPES[dim]]


def test_methods_keep_an_axis_of_their_own() -> None:
    derived = derive(classes_first, dim=0)
    h = torch.randn(5, 10, dtype=torch.float64)
    torch.testing.assert_close(derived.label(h), h.softmax(-1))
    torch.testing.assert_close(derived.label(h.T, dim=0), h.softmax(-1).T)


def test_function_on_the_wrong_axis_is_refused() -> None:
    with pytest.raises(UnsuitableLossError, match=r"pass classes=; .* on another axis, dim="):
        derive(images_only)
    for classes in (3, 10):  # with three classes, samples and classes are as many on the probes
        with pytest.raises(UnsuitableLossError):
            derive(per_pixel, dim=0, classes=classes)


def test_equality_sees_the_axis() -> None:
    assert derive(Poly(1), dim=1) == derive(Poly(1))
    assert derive(per_pixel, dim=-3) == derive(per_pixel, dim=-3)
    assert derive(per_pixel, dim=-3) != derive(per_pixel, dim=-4)
