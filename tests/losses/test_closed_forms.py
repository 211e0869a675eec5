"""The closed forms against torch's own losses, brute force and hand-made numbers."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fenchel.losses import (
    LOSSES,
    BinaryCrossEntropy,
    CrossEntropy,
    Entmax15,
    ExponentialLoss,
    FocalLoss,
    GeneralizedCrossEntropy,
    LabelSmoothing,
    Loss,
    PolyLoss,
    ProbabilityLoss,
    Sparsemax,
    SquaredLoss,
    parse,
)


@pytest.fixture
def h() -> Tensor:
    return 2 * torch.randn(6, 10, dtype=torch.float64)


@pytest.fixture
def y(h: Tensor) -> Tensor:
    return torch.randn_like(h).softmax(-1)


def test_cross_entropy_is_torchs(h: Tensor, y: Tensor) -> None:
    indices = torch.tensor([0, 9, 3, 3, 5, 1])
    torch.testing.assert_close(CrossEntropy()(h, y), F.cross_entropy(h, y, reduction="none"))
    torch.testing.assert_close(
        CrossEntropy()(h, indices), F.cross_entropy(h, indices, reduction="none")
    )
    entropy = torch.distributions.Categorical(logits=h).entropy()
    torch.testing.assert_close(CrossEntropy().conjugate(h), entropy)


def test_label_smoothing_is_torchs(h: Tensor) -> None:
    indices = torch.tensor([0, 9, 3, 3, 5, 1])
    expected = F.cross_entropy(h, indices, reduction="none", label_smoothing=0.3)
    torch.testing.assert_close(LabelSmoothing(smoothing=0.3)(h, indices), expected)


def test_binary_cross_entropy_is_torchs(h: Tensor) -> None:
    y = torch.rand_like(h)
    expected = F.binary_cross_entropy_with_logits(h, y, reduction="none").sum(-1)
    torch.testing.assert_close(BinaryCrossEntropy()(h, y), expected)
    entropy = torch.distributions.Bernoulli(logits=h).entropy().sum(-1)
    torch.testing.assert_close(BinaryCrossEntropy().conjugate(h), entropy)


def test_squared_loss_is_torchs(h: Tensor, y: Tensor) -> None:
    torch.testing.assert_close(SquaredLoss()(h, y), F.mse_loss(h, y, reduction="none").sum(-1) / 2)


def test_exponential_loss_is_the_exponential_of_the_margin() -> None:
    h, y = torch.randn(8, 1, dtype=torch.float64), torch.tensor([1, -1, 1, 1, -1, -1, 1, -1])
    torch.testing.assert_close(ExponentialLoss()(h, y), torch.exp(-y * h[:, 0]))
    torch.testing.assert_close(ExponentialLoss().conjugate(h), 1 / torch.cosh(h[:, 0]))


def test_exponential_loss_of_a_right_sign_is_finite_however_large() -> None:
    h = torch.tensor([[1e4], [-1e4]], requires_grad=True)
    value = ExponentialLoss()(h, torch.tensor([1, -1]))
    (slope,) = torch.autograd.grad(value.sum(), h)
    assert torch.equal(value, torch.zeros(2))
    assert slope.isfinite().all()


@pytest.mark.parametrize(
    ("loss", "penalty"),
    [
        (PolyLoss(epsilon=6.0), lambda z: -z.log() + 6 * (1 - z)),
        (GeneralizedCrossEntropy(q=0.7), lambda z: (1 - z**0.7) / 0.7),
        (FocalLoss(gamma=2.0), lambda z: -((1 - z) ** 2) * z.log()),
        (FocalLoss(gamma=0.5), lambda z: -((1 - z) ** 0.5) * z.log()),
    ],
    ids=["poly", "generalised", "focal", "focal below one"],
)
def test_true_class_losses_are_their_textbook_formula(
    loss: Loss, penalty: Callable[[Tensor], Tensor], h: Tensor, y: Tensor
) -> None:
    torch.testing.assert_close(loss(h, y), (y * penalty(h.softmax(-1))).sum(-1))
    twin = ProbabilityLoss(phi=penalty)
    torch.testing.assert_close(twin(h, y), loss(h, y))
    torch.testing.assert_close(twin.label(h), loss.label(h))
    torch.testing.assert_close(twin.conjugate(h), loss.conjugate(h))


@pytest.mark.parametrize("classes", [10, 100, 1000])
def test_poly_label_equals_the_linear_solve_in_float32(classes: int) -> None:
    h = 3 * torch.randn(4, classes)
    loss = PolyLoss(epsilon=6.0)
    z = h.double().softmax(-1)
    # Dg^T = I + epsilon (diag z - z z^T), symmetric; grad f = z.
    covariance = torch.diag_embed(z) - z[:, :, None] * z[:, None, :]
    matrix = torch.eye(classes, dtype=torch.float64) + 6 * covariance
    expected = torch.linalg.solve(matrix, z)
    assert (loss.label(h) - expected).abs().max() < 1e-6
    solved_in_float32 = torch.linalg.solve(matrix.float(), z.float())
    assert (loss.label(h) - solved_in_float32).abs().max() < 1e-6


def test_sparsemax_label_is_the_projection_onto_the_simplex() -> None:
    h = torch.randn(5, 4, dtype=torch.float64)
    label = Sparsemax().label(h)
    # The projection is the one point of the simplex from which no other point is in sight of h.
    assert (label >= 0).all()
    torch.testing.assert_close(label.sum(-1), torch.ones(5, dtype=torch.float64))
    others = torch.distributions.Dirichlet(torch.ones(4, dtype=torch.float64)).sample((2000,))
    angle = ((others[:, None] - label) * (h - label)).sum(-1)
    assert angle.max() <= 1e-12


@pytest.mark.parametrize("classes", [2, 10, 500])
@pytest.mark.parametrize(("loss", "power", "shrink"), [(Sparsemax(), 1, 1), (Entmax15(), 2, 2)])
def test_sparse_labels_by_bisection(loss: Loss, power: int, shrink: int, classes: int) -> None:
    h = 3 * torch.randn(6, classes, dtype=torch.float64)
    x = h / shrink
    low, high = x.amax(-1, keepdim=True) - 1, x.amax(-1, keepdim=True)
    for _ in range(80):
        middle = (low + high) / 2
        too_much = (x - middle).clamp_min(0).pow(power).sum(-1, keepdim=True) > 1
        low, high = torch.where(too_much, middle, low), torch.where(too_much, high, middle)
    torch.testing.assert_close(loss.label(h), (x - low).clamp_min(0).pow(power))
    assert classes == 2 or (loss.label(h) == 0).any()


@pytest.mark.parametrize("loss", [Sparsemax(), Entmax15()], ids=repr)
def test_sparse_labels_with_ties_are_shared(loss: Loss) -> None:
    h = torch.tensor([[1.0, 1.0, 1.0, -5.0], [0.0, 0.0, 0.0, 0.0]])
    expected = torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0.0], [0.25, 0.25, 0.25, 0.25]])
    torch.testing.assert_close(loss.label(h), expected)


def test_probability_loss_needs_a_decreasing_penalty() -> None:
    with pytest.raises(ValueError, match=r"decreasing on \(0, 1\).*Check its sign"):
        ProbabilityLoss(phi=lambda z: z.log())
    with pytest.raises(ValueError, match="elementwise"):
        ProbabilityLoss(phi=lambda z: -z.log().sum())


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ("poly:epsilon=-1", "epsilon > -1"),
        ("poly:epsilon=1e999", "finite"),
        ("focal:gamma=-0.1", "gamma >= 0"),
        ("generalized-cross-entropy:q=0", "0 < q <= 1"),
        ("generalized-cross-entropy:q=1.1", "0 < q <= 1"),
        ("label-smoothing:smoothing=1", "0 <= s < 1"),
        ("poly:eps=1", "epsilon"),
        ("pohly", "Did you mean 'poly'"),
        ("poly:epsilon=much", "poly:epsilon=much"),
    ],
)
def test_numbers_outside_their_range_are_refused(spec: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        parse(spec)


def test_labels_of_a_wrong_kind_are_refused() -> None:
    h = torch.randn(4, 3)
    with pytest.raises(ValueError, match=r"class indices must lie in 0..2; got 0..3"):
        CrossEntropy()(h, torch.tensor([0, 1, 2, 3]))
    with pytest.raises(TypeError, match="integer class indices"):
        CrossEntropy()(h, torch.rand(4))
    with pytest.raises(ValueError, match="pass dim="):
        CrossEntropy()(h, torch.zeros(3, 4))
    with pytest.raises(ValueError, match="at least one axis"):
        CrossEntropy().label(torch.tensor(1.0))
    with pytest.raises(TypeError, match="complex"):
        CrossEntropy().label(torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(ValueError, match="at least 2 classes"):
        FocalLoss().label(torch.zeros(4, 1))


def test_integer_scores_are_taken_as_numbers() -> None:
    assert torch.equal(CrossEntropy().label(torch.tensor([0, 0])), torch.tensor([0.5, 0.5]))


def test_exponential_objective_of_zero_score_is_one() -> None:
    assert math.isclose(float(ExponentialLoss().conjugate(torch.zeros(1))), 1.0, rel_tol=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_empty_batch_gives_no_values(name: str) -> None:
    loss = LOSSES[name]()
    h = torch.zeros(0, 1 if isinstance(loss, ExponentialLoss) else 5)
    assert loss.conjugate(h).shape == (0,)
    assert loss.label(h).shape == h.shape
    assert loss(h, torch.zeros(0, dtype=torch.long)).shape == (0,)


def test_probability_loss_keeps_counting_far_from_the_true_class() -> None:
    h = torch.tensor([[0.0, -300.0]], requires_grad=True)
    value = ProbabilityLoss(phi=lambda z: -z.log())(h, torch.tensor([1]))
    (slope,) = torch.autograd.grad(value.sum(), h)
    torch.testing.assert_close(value.detach(), torch.tensor([300.0]))
    torch.testing.assert_close(slope, torch.tensor([[1.0, -1.0]]))
