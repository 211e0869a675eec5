"""Losses that nobody listed, against a dense solve and finite differences."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fenchel import PolyLoss, derive
from fenchel.losses import DerivedLoss, OneOfMany, Signed, UnsolvedLabelWarning, YesOrNo

LossFunction = Callable[[Tensor, Tensor], Tensor]


def log_z(h: Tensor) -> Tensor:
    return h.log_softmax(-1)


def numbers(h: Tensor) -> Tensor:
    """One fixed number per class, in [0.5, 1.5]."""
    return 1 + torch.linspace(0, 7, h.shape[-1]).to(h).sin() / 2


def confusion(h: Tensor) -> Tensor:
    """A label-noise matrix: 0.8 stays, the rest goes to the neighbour."""
    eye = torch.eye(h.shape[-1]).to(h)
    return 0.8 * eye + 0.2 * eye.roll(1, 0)


def entropy_of(y: Tensor) -> Tensor:
    return torch.xlogy(y, y).sum()


def half_square(y: Tensor) -> Tensor:
    return y.square().sum() / 2


def margin_loss(h: Tensor, y: Tensor) -> Tensor:
    shifted = h[:, None, :] - 2 * torch.eye(h.shape[-1]).to(h)
    return (y * (shifted.logsumexp(-1) - h + 2)).sum(-1)


@dataclass(frozen=True)
class Case:
    function: LossFunction
    target_term: Callable[[Tensor], Tensor] | None = None
    on_simplex: bool = False


CASES = {
    "class weights": Case(lambda h, y: -(y * numbers(h) * log_z(h)).sum(-1)),
    "class weights by torch": Case(
        lambda h, y: F.cross_entropy(h, y, weight=numbers(h), reduction="none")
    ),
    "logit adjustment": Case(lambda h, y: -(y * log_z(h + numbers(h).log())).sum(-1)),
    "temperature": Case(lambda h, y: -(y * log_z(h / 3)).sum(-1)),
    "kl with xlogy": Case(
        lambda h, y: (torch.xlogy(y, y) - y * log_z(h)).sum(-1), target_term=entropy_of
    ),
    "kl by torch, weighted": Case(
        lambda h, y: (numbers(h) * F.kl_div(log_z(h), y, reduction="none")).sum(-1),
        target_term=lambda y: (numbers(y) * torch.xlogy(y, y)).sum(),
    ),
    "kl, batch mean": Case(
        lambda h, y: F.kl_div(log_z(h), y, reduction="batchmean"), target_term=entropy_of
    ),
    "brier": Case(lambda h, y: (h.softmax(-1) - y).square().sum(-1) / 2, target_term=half_square),
    "taylor": Case(lambda h, y: (y * (1 - h.softmax(-1)) * (1.5 - h.softmax(-1) / 2)).sum(-1)),
    "mean squares, reduced": Case(nn.MSELoss(), target_term=lambda y: y.square().mean()),
    "squares of sigmoids": Case(
        lambda h, y: (h.sigmoid() - y).square().sum(-1) / 2, target_term=half_square
    ),
    "binary, reduced": Case(nn.BCEWithLogitsLoss()),
    "multi-label by torch": Case(
        lambda h, y: F.multilabel_soft_margin_loss(h, y, reduction="none")
    ),
    "asymmetric multi-label": Case(
        lambda h, y: -(y * F.logsigmoid(h) + (1 - y) * h.sigmoid() ** 3 * F.logsigmoid(-h))
    ),
    "normalised inside": Case(
        lambda h, y: -(y / y.sum(-1, keepdim=True) * numbers(h) * log_z(h)).sum(-1),
        on_simplex=True,
    ),
    "confidence penalty": Case(
        lambda h, y: -(y * log_z(h)).sum(-1) + 0.1 * (h.softmax(-1) * log_z(h)).sum(-1)
    ),
    "cross-entropy and squares": Case(
        lambda h, y: -(y * log_z(h)).sum(-1) + 0.3 * (h - y).square().sum(-1),
        target_term=lambda y: 0.3 * y.square().sum(),
    ),
    "smoothed poly": Case(
        lambda h, y: (
            F.cross_entropy(h, y, label_smoothing=0.1, reduction="none")
            + 2 * (1 - (y * h.softmax(-1)).sum(-1))
        )
    ),
    "poisson": Case(lambda h, y: F.poisson_nll_loss(h, y, reduction="none")),
    "cosine": Case(lambda h, y: 1 - (y * F.normalize(h, dim=-1)).sum(-1)),
    "spherical score": Case(lambda h, y: -(y * F.normalize(h.softmax(-1), dim=-1)).sum(-1)),
    "forward correction": Case(lambda h, y: -(y * (h.softmax(-1) @ confusion(h)).log()).sum(-1)),
    "backward correction": Case(
        lambda h, y: -((y @ torch.linalg.inv(confusion(h))) * log_z(h)).sum(-1)
    ),
    "margin": Case(margin_loss),
    "squared hinge": Case(
        lambda h, y: (y * F.relu(1 - h) ** 2 + (1 - y) * F.relu(1 + h) ** 2).sum(-1)
    ),
    "symmetric": Case(lambda h, y: -(y * log_z(h)).sum(-1) + 4 * (1 - (y * h.softmax(-1)).sum(-1))),
}


def relative_gap(actual: Tensor, expected: Tensor) -> float:
    return float(((actual - expected).abs() / expected.abs().clamp_min(1)).max())


def objective_and_slope(loss: DerivedLoss, h: Tensor) -> tuple[Tensor, Tensor]:
    point = h.clone().requires_grad_()
    value = loss.conjugate(point)
    return value.detach(), torch.autograd.grad(value.sum(), point)[0]


@pytest.mark.parametrize("classes", [10, 50])
@pytest.mark.parametrize("name", CASES)
def test_unlisted_loss_agrees_with_dense_solve_and_finite_differences(
    name: str, classes: int, oracle: Callable[..., Any]
) -> None:
    case = CASES[name]
    exact = oracle(case.function, case.target_term, case.on_simplex)
    loss = derive(case.function)
    h = 2 * torch.randn(2, classes, dtype=torch.float64)
    direction = torch.randn(classes, dtype=torch.float64)
    value, slope = objective_and_slope(loss, h)
    expected = torch.stack([exact.objective(row) for row in h])
    moved = torch.stack([exact.directional_derivative(row, direction) for row in h])
    assert relative_gap(loss.label(h), torch.stack([exact.label(row) for row in h])) < 1e-8
    assert relative_gap(value, expected) < 1e-8
    assert relative_gap(slope @ direction, moved) < 1e-6
    narrow, narrow_slope = objective_and_slope(loss, h.float())
    assert relative_gap(narrow, value) < 1e-5
    assert relative_gap(narrow_slope, slope) < 1e-5


@pytest.mark.parametrize("name", ["class weights", "brier", "spherical score", "squared hinge"])
def test_many_classes_agree_with_the_dense_solve(name: str, oracle: Callable[..., Any]) -> None:
    case = CASES[name]
    exact = oracle(case.function, case.target_term)
    loss = derive(case.function)
    h = 2 * torch.randn(1, 300, dtype=torch.float64)
    assert "dense" not in loss.findings(300).solver
    assert relative_gap(loss.label(h)[0], exact.label(h[0])) < 1e-8
    assert relative_gap(loss.conjugate(h)[0], exact.objective(h[0])) < 1e-8


PROPER = {
    "brier": (CASES["brier"].function, lambda h: -h.softmax(-1).square().sum(-1) / 2),
    "spherical": (CASES["spherical score"].function, lambda h: -h.softmax(-1).norm(dim=-1)),
    "temperature": (
        CASES["temperature"].function,
        lambda h: -((h / 3).softmax(-1) * log_z(h / 3)).sum(-1),
    ),
    "smoothed": (
        nn.CrossEntropyLoss(label_smoothing=0.1),
        lambda h: -(log_z(h).exp() * log_z(h)).sum(-1),
    ),
}


@pytest.mark.parametrize("classes", [10, 100, 1000])
@pytest.mark.parametrize("name", PROPER)
def test_derived_objectives_hold_at_the_logits_of_trained_networks(name: str, classes: int) -> None:
    function, truth = PROPER[name]
    loss = derive(function)
    for width in (1, 3, 10):
        h = width * torch.randn(8, classes)
        value, slope = objective_and_slope(loss, h)
        point = h.double().requires_grad_()
        expected = truth(point)
        (expected_slope,) = torch.autograd.grad(expected.sum(), point)
        assert relative_gap(value, expected.detach()) < 1e-6
        assert relative_gap(slope, expected_slope) < 1e-6


@pytest.mark.parametrize("classes", [2, 10, 100, 1000])
@pytest.mark.parametrize(
    "name", ["logit adjustment", "brier", "confidence penalty", "temperature", "spherical score"]
)
def test_saturated_logits_stay_finite(name: str, classes: int) -> None:
    loss = derive(CASES[name].function)
    for size in (30.0, 100.0, 1e4):
        h = size * (2 * torch.rand(6, classes) - 1)
        h[0], h[1] = size, -size
        h[2] = torch.where(torch.arange(classes) == 0, size, -size)
        value, slope = objective_and_slope(loss, h)
        assert loss.label(h).isfinite().all()
        assert value.isfinite().all()
        assert slope.isfinite().all()
        assert slope.abs().max() < 10


def test_class_that_never_moves_the_loss_is_no_column_of_rounding() -> None:
    def ordinal(h: Tensor, y: Tensor) -> Tensor:
        return (h.softmax(-1).cumsum(-1) - y.cumsum(-1)).square().sum(-1)  # the last term is zero

    h = 2 * torch.randn(4, 10, dtype=torch.float64)
    torch.testing.assert_close(derive(ordinal).label(h), h.softmax(-1))


def test_forward_correction_has_the_noisy_probabilities_as_label() -> None:
    h = 2 * torch.randn(4, 60, dtype=torch.float64)
    label = derive(CASES["forward correction"].function).label(h)
    torch.testing.assert_close(label, h.softmax(-1) @ confusion(h))


def test_pair_of_formulas_is_a_loss() -> None:
    derived = derive(f=lambda h: h.logsumexp(-1), g=lambda h: h - 6 * (1 - h.softmax(-1)))
    h = torch.randn(4, 10, dtype=torch.float64)
    torch.testing.assert_close(derived.label(h), PolyLoss(epsilon=6.0).label(h))
    torch.testing.assert_close(derived.conjugate(h), PolyLoss(epsilon=6.0).conjugate(h))
    torch.testing.assert_close(derived(h, h.softmax(-1)), PolyLoss(epsilon=6.0)(h, h.softmax(-1)))


@dataclass
class PolyByHand:
    epsilon: float

    def __call__(self, h: Tensor, y: Tensor) -> Tensor:
        return -(y * log_z(h)).sum(-1) + self.epsilon * (1 - (y * h.softmax(-1)).sum(-1))


class PolyModule(nn.Module):
    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.epsilon = nn.Parameter(torch.tensor(epsilon), requires_grad=False)

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        return PolyByHand(self.epsilon)(h, y).mean()


def checked_poly(h: Tensor, y: Tensor) -> Tensor:
    if bool((y < 0).any()) or not torch.allclose(y.sum(-1), torch.ones_like(y[..., 0])):
        raise ValueError("targets must be probabilities")
    return PolyByHand(6.0)(h, y)


def asserting_poly(h: Tensor, y: Tensor) -> Tensor:
    assert (y >= 0).all()
    assert ((y.sum(-1) - 1).abs() < 1e-4).all()
    return PolyByHand(6.0)(h, y).mean()


@pytest.mark.parametrize(
    "function",
    [
        PolyByHand(6.0),
        PolyModule(6.0),
        functools.partial(lambda epsilon, h, y: PolyByHand(epsilon)(h, y), 6.0),
        lambda h, y: PolyByHand(6.0)(h.clone(), y).unsqueeze(-1),
        checked_poly,
        asserting_poly,
        lambda h, y: PolyByHand(6.0)(h.float(), y.float()),
    ],
    ids=[
        "dataclass",
        "module",
        "partial",
        "keepdim",
        "checks targets",
        "asserts",
        "float32 inside",
    ],
)
@pytest.mark.parametrize("classes", [10, 40])
def test_functions_come_in_many_shapes(function: LossFunction, classes: int) -> None:
    h = torch.randn(3, classes, dtype=torch.float64)
    derived, expected = derive(function), PolyLoss(epsilon=6.0)
    value, slope = objective_and_slope(derived, h)
    point = h.clone().requires_grad_()
    (expected_slope,) = torch.autograd.grad(expected.conjugate(point).sum(), point)
    assert relative_gap(derived.label(h), expected.label(h)) < 1e-5
    assert relative_gap(value, expected.conjugate(h)) < 1e-5
    assert relative_gap(slope, expected_slope) < 1e-5


def test_weights_of_a_fixed_number_of_classes_need_classes() -> None:
    weight = torch.linspace(0.5, 1.5, 7)
    function = nn.CrossEntropyLoss(weight=weight, reduction="none")
    with pytest.raises(ValueError, match="pass classes="):
        derive(function)
    h = torch.randn(3, 7)
    label = derive(function, classes=7).label(h)
    torch.testing.assert_close(
        label, (h.softmax(-1) / weight) / (h.softmax(-1) / weight).sum(-1, True)
    )


def test_extra_axes_and_inference_mode() -> None:
    derived = derive(CASES["class weights"].function)
    h = torch.randn(2, 3, 10)
    with torch.inference_mode():
        inside = derived.conjugate(h * 1)
    torch.testing.assert_close(inside, derived.conjugate(h))
    torch.testing.assert_close(derived.conjugate(h.movedim(-1, 1), dim=1), derived.conjugate(h))
    assert derived.label(h).shape == h.shape


def test_label_space_follows_the_number_of_scores_or_the_wish() -> None:
    assert derive(nn.CrossEntropyLoss()).labels == OneOfMany()
    assert derive(nn.BCEWithLogitsLoss(), labels=YesOrNo()).labels == YesOrNo()
    assert derive(lambda h, y: (h.cosh() - y * h.sinh()).sum(-1), classes=1).labels == Signed()


def test_findings_tell_what_was_found() -> None:
    recognised = derive(nn.CrossEntropyLoss()).findings()
    assert recognised.structure == "a function of the true class's probability"
    assert "O(C)" in recognised.solver
    text = str(derive(CASES["brier"].function).findings())
    assert "only its gradient is affine in the target" in text
    assert "rank C - 1" in text
    assert "dense factorisation (at 10 classes)" in text
    assert "one value per sample" in text
    full = derive(nn.MSELoss()).findings(50)
    assert full.output == "one value per batch, evaluated sample by sample"
    assert full.structure == "a linear system of full rank"
    assert full.solver == "diagonal plus rank one, solved directly: O(C)"
    iterated = derive(CASES["spherical score"].function).findings(50)
    assert iterated.solver.startswith("matrix-free GMRES")
    assert full.affinity_gap < 1e-8
    infinite = derive(CASES["kl with xlogy"].function).findings()
    assert "interpolated between y = 0 and the one-hot labels" in infinite.rule
    simplex = derive(CASES["normalised inside"].function).findings()
    assert "labels that sum to one only" in simplex.rule


def test_derived_losses_are_equal_when_their_function_is() -> None:
    first, second = derive(PolyByHand(6.0)), derive(PolyByHand(6.0))
    assert first == second
    assert hash(first) == hash(second)
    assert first != derive(PolyByHand(5.0))
    assert repr(derive(checked_poly)) == "DerivedLoss(checked_poly)"
    assert derive(checked_poly, name="mine").spec == "derived:mine"


@pytest.mark.parametrize("classes", [5, 50])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_empty_batch_gives_no_values(reduction: str, classes: int) -> None:
    loss = derive(nn.CrossEntropyLoss(label_smoothing=0.1, reduction=reduction))
    h = torch.zeros(0, classes)
    assert loss.conjugate(h).shape == (0,)
    assert loss.label(h).shape == h.shape


@pytest.mark.parametrize("classes", [5, 50, 300])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_scores_that_are_not_finite_spoil_their_own_sample_only(classes: int, bad: float) -> None:
    loss = derive(CASES["class weights"].function)
    h = torch.randn(3, classes)
    spoilt = h.clone()
    spoilt[1, 0] = bad
    value, slope = objective_and_slope(loss, spoilt)
    expected, expected_slope = objective_and_slope(loss, h)
    assert not value[1].isfinite()
    torch.testing.assert_close(value[::2], expected[::2])
    torch.testing.assert_close(slope[::2], expected_slope[::2])


def test_a_solver_that_stops_short_says_so():
    """Beyond the classes where a matrix may be built instead, at scores far from those it was planned on."""

    def steep(h: Tensor, y: Tensor) -> Tensor:
        mixed = h + 0.5 * h.roll(1, -1)
        return -(y * log_z(mixed + mixed**3 / 10)).sum(-1)

    loss = derive(steep, classes=300)
    scores = torch.randn(8, 300, generator=torch.Generator().manual_seed(0))
    loss.label(scores)
    with pytest.warns(UnsolvedLabelWarning, match="of 8 samples misses its equations"):
        loss.label(40 * scores)
