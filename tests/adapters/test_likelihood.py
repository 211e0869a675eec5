"""What scores say of the classes, by the training loss."""

from __future__ import annotations

import pytest
import torch

import fenchel
from fenchel.adapters.likelihood import Probabilities, are_copies


@pytest.fixture
def logits():
    return torch.randn(7, 5, dtype=torch.float64)


@pytest.mark.parametrize("loss", [None, fenchel.CrossEntropy()])
def test_cross_entropy_and_an_unknown_loss_give_the_softmax(logits, loss):
    torch.testing.assert_close(Probabilities(loss)(logits), logits.softmax(-1))


def test_poly_loss_gives_its_conjugate_label(logits):
    """In closed form proportional to z / (1 + epsilon z), z the softmax."""
    z = logits.softmax(-1)
    wanted = z / (1 + 3 * z)
    found = Probabilities(fenchel.PolyLoss(epsilon=3.0))(logits)
    torch.testing.assert_close(found, wanted / wanted.sum(-1, keepdim=True))


def test_the_squared_loss_gives_the_scores_themselves_cut_off_at_zero():
    scores = torch.tensor([[0.9, 0.3, -0.2], [-1.0, -2.0, -3.0], [0.0, 0.5, 0.0]]).double()
    found = Probabilities(fenchel.SquaredLoss())(scores)
    torch.testing.assert_close(found[0], torch.tensor([0.75, 0.25, 0.0]).double())
    torch.testing.assert_close(found[2], torch.tensor([0.0, 1.0, 0.0]).double())
    assert found.isfinite().all()


def test_one_score_stands_for_two_classes():
    h = torch.tensor([[0.0], [2.0], [-1.0]]).double()
    found = Probabilities(fenchel.ExponentialLoss())(h)
    assert found.shape == (3, 2)
    torch.testing.assert_close(found[:, 1], torch.sigmoid(2 * h[:, 0]))
    torch.testing.assert_close(found.sum(-1), torch.ones(3).double())


@pytest.mark.parametrize("name", ["cross-entropy", "poly", "squared", "focal", "label-smoothing"])
def test_rows_are_distributions_without_a_gradient(logits, name):
    found = Probabilities(fenchel.losses.parse(name))(logits.requires_grad_())
    assert not found.requires_grad
    assert (found >= 0).all()
    rows = found.sum(-1)
    assert ((rows - 1).abs() < 1e-9).logical_or(rows == 0).all()


def test_several_labels_at_once_and_several_predictions_per_sample_have_none(logits):
    assert Probabilities(fenchel.BinaryCrossEntropy())(logits) is None
    assert Probabilities(fenchel.CrossEntropy())(logits[:, None]) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_raised(logits, dtype):
    assert Probabilities()(logits.to(dtype)).dtype == torch.float32


def test_a_batch_is_copies_where_nothing_but_rounding_tells_its_predictions_apart():
    one = torch.tensor([[40.0, -3.0, 0.5]])
    assert are_copies(one.repeat(3, 1))
    assert are_copies(one.repeat(3, 1) + 1e-5 * torch.rand(3, 3))
    assert not are_copies(one.repeat(3, 1) + torch.tensor([[0.0], [0.0], [1e-2]]))
    assert not are_copies(one), "one image is no copy"
    sure_of_one_class = torch.tensor([[40.0, 0.0], [60.0, 0.0]])
    assert not are_copies(sure_of_one_class), "other images of the same class"
