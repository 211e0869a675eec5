"""Each objective against a version of a few lines, and which samples count."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fenchel.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    ExponentialLoss,
    FocalLoss,
    Loss,
    PolyLoss,
    SquaredLoss,
)
from fenchel.objectives import (
    Conjugate,
    Entropy,
    HardPseudoLabel,
    Objective,
    Quadratic,
    RobustPseudoLabel,
    ScaledEntropy,
    SoftPseudoLabel,
)


@pytest.fixture
def h() -> Tensor:
    return 2 * torch.randn(20, 7, dtype=torch.float64)


def entropy(z: Tensor) -> Tensor:
    return -(z * z.log()).sum(-1)


def slope(objective: Objective, h: Tensor) -> Tensor:
    point = h.clone().requires_grad_()
    return torch.autograd.grad(objective(point).sum(), point)[0]


def test_entropy_of_softmax_and_of_sigmoid(h: Tensor) -> None:
    torch.testing.assert_close(Entropy()(h), entropy(h.softmax(-1)))
    z = h.sigmoid()
    expected = (-(z * z.log()) - (1 - z) * (1 - z).log()).sum(-1)
    torch.testing.assert_close(Entropy(activation="sigmoid")(h), expected)


def test_entropy_knows_two_activations() -> None:
    with pytest.raises(ValueError, match="'softmax' or 'sigmoid'; got 'relu'"):
        Entropy(activation="relu")  # type: ignore[arg-type]


def test_scaled_entropy_is_the_fitted_shape(h: Tensor) -> None:
    objective = ScaledEntropy(alpha=3.0, temperature=2.0, offset=0.5)
    torch.testing.assert_close(objective(h), 3 * entropy((h / 2).softmax(-1)) - 0.5)


def test_quadratic_is_the_fitted_shape(h: Tensor) -> None:
    torch.testing.assert_close(Quadratic(a=-2.0, offset=0.1)(h), (-2 * h**2 + 0.1).sum(-1))
    torch.testing.assert_close(Quadratic()(h), Conjugate(SquaredLoss())(h))


def test_conjugate_of_poly_is_the_formula_of_its_definition(h: Tensor) -> None:
    z = (h / 2).softmax(-1)
    label = z / (1 + 6 * z)
    label = label / label.sum(-1, keepdim=True)
    expected = (label * (-z.log() + 6 * (1 - z))).sum(-1)
    objective = Conjugate(PolyLoss(epsilon=6.0), temperature=2.0)
    torch.testing.assert_close(objective(h), expected)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_for_cross_entropy_soft_labels_entropy_and_conjugate_are_one(
    h: Tensor, temperature: float
) -> None:
    loss = CrossEntropy()
    objectives = [
        Entropy(temperature=temperature),
        SoftPseudoLabel(loss, temperature=temperature),
        Conjugate(loss, temperature=temperature),
    ]
    for objective in objectives[1:]:
        torch.testing.assert_close(objective(h), objectives[0](h))
        torch.testing.assert_close(slope(objective, h), slope(objectives[0], h))


def test_soft_label_is_not_detached(h: Tensor) -> None:
    objective = SoftPseudoLabel(PolyLoss(epsilon=6.0))
    point = h.clone().requires_grad_()
    z = point.softmax(-1)
    live = (z * (-z.log() + 6 * (1 - z))).sum(-1)
    torch.testing.assert_close(objective(h), live.detach())
    torch.testing.assert_close(slope(objective, h), torch.autograd.grad(live.sum(), point)[0])


def test_soft_and_conjugate_differ_for_poly(h: Tensor) -> None:
    loss = PolyLoss(epsilon=6.0)
    assert (SoftPseudoLabel(loss)(h) - Conjugate(loss)(h)).abs().max() > 0.1


@pytest.mark.parametrize(
    "loss", [CrossEntropy(), PolyLoss(epsilon=6.0), SquaredLoss(), FocalLoss()], ids=repr
)
def test_hard_label_is_the_likeliest_class(loss: Loss, h: Tensor) -> None:
    torch.testing.assert_close(HardPseudoLabel(loss)(h), loss(h, h.argmax(-1)))


def test_hard_label_of_one_score_is_its_sign() -> None:
    h = torch.tensor([[2.0], [-1.0], [0.0], [30.0]])
    objective = HardPseudoLabel(ExponentialLoss(), threshold=None)
    torch.testing.assert_close(objective(h), torch.exp(-h[:, 0].abs()))
    assert objective.weights(h) is None
    kept = HardPseudoLabel(ExponentialLoss(), threshold=0.75).weights(h)
    assert kept is not None
    assert kept.tolist() == [True, False, False, True]  # sigmoid(2) = 0.88, sigmoid(1) = 0.73


def test_hard_label_of_many_labels_is_each_ones_own() -> None:
    h = torch.tensor([[2.0, -3.0, 0.5], [-1.0, -1.0, 4.0]])
    expected = F.binary_cross_entropy_with_logits(h, (h > 0).float(), reduction="none").sum(-1)
    objective = HardPseudoLabel(BinaryCrossEntropy())
    torch.testing.assert_close(objective(h), expected)
    confidence = h.abs().sigmoid().mean(-1)
    assert torch.equal(objective.weights(h), (confidence > 0.75).float())


def test_threshold_is_strict() -> None:
    h = torch.tensor([[0.0, 0.0], [0.1, 0.0]])  # confidences 0.5 exactly, and a little more
    kept = HardPseudoLabel(CrossEntropy(), threshold=0.5).weights(h)
    assert kept is not None
    assert kept.tolist() == [False, True]


def test_threshold_sees_the_temperature() -> None:
    h = torch.tensor([[3.0, 0.0]])  # 0.95 at T = 1, 0.68 at T = 4
    for temperature, expected in ((1.0, True), (4.0, False)):
        objective = HardPseudoLabel(CrossEntropy(), threshold=0.75, temperature=temperature)
        kept = objective.weights(h)
        assert kept is not None
        assert kept.tolist() == [expected]


def test_confidence_of_a_squared_loss_model_is_its_softmax(h: Tensor) -> None:
    kept = HardPseudoLabel(SquaredLoss()).weights(h)
    assert kept is not None
    assert torch.equal(kept, (h.softmax(-1).amax(-1) > 0.75).to(h.dtype))
    assert 0 < kept.sum() < len(h)


@pytest.mark.parametrize("threshold", [-0.1, 1.0, 1.5, float("nan")])
def test_threshold_is_a_probability_below_one(threshold: float) -> None:
    with pytest.raises(ValueError, match="0 <= threshold < 1, or None"):
        HardPseudoLabel(CrossEntropy(), threshold=threshold)


def test_robust_labels_are_generalised_cross_entropy_at_the_likeliest_class(h: Tensor) -> None:
    z = h.softmax(-1).amax(-1)
    torch.testing.assert_close(RobustPseudoLabel()(h), (1 - z**0.8) / 0.8)
    torch.testing.assert_close(RobustPseudoLabel(q=0.3)(h), (1 - z**0.3) / 0.3)
    assert RobustPseudoLabel().weights(h) is None
    with pytest.raises(ValueError, match="0 < q <= 1"):
        RobustPseudoLabel(q=0.0)
