"""What holds for every objective: a new file under objectives/ is covered here with no other edit."""

import dataclasses
from itertools import product

import pytest
import torch
from torch import Tensor

from fenchel.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    ExponentialLoss,
    PolyLoss,
    SquaredLoss,
)
from fenchel.objectives import OBJECTIVES, MarginalEntropy, Objective, weighted_mean
from fenchel.objectives.loss_network import LossNetwork

LOSSES = (
    CrossEntropy(),
    PolyLoss(epsilon=6.0),
    SquaredLoss(),
    BinaryCrossEntropy(),
    ExponentialLoss(),
)


def variations() -> list[Objective]:
    """Every registered objective; those that take a loss, with losses of every label space."""
    objectives: list[Objective] = []
    for cls in OBJECTIVES.values():
        fields = {field.name for field in dataclasses.fields(cls)}
        if "network" in fields:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)  # its digest is part of the test's name
                objectives.append(cls(network=LossNetwork(classes=5)))
        else:
            objectives += [cls(loss=loss) for loss in LOSSES] if "loss" in fields else [cls()]
    return objectives


every_objective = pytest.mark.parametrize("objective", variations(), ids=repr)


def scores(objective: Objective, samples: int = 6, dtype: torch.dtype = torch.float64) -> Tensor:
    """Scores (samples, classes), or (views, samples, classes) where the objective has views."""
    single = getattr(objective, "loss", None) == ExponentialLoss()
    shape = (samples, 1 if single else 5)
    if isinstance(objective, MarginalEntropy):
        shape = (objective.views, *shape)
    return torch.randn(shape, dtype=dtype)


@every_objective
def test_one_value_a_sample(objective: Objective) -> None:
    h = scores(objective, samples=6)
    keep = objective.weights(h)
    assert objective(h).shape == (6,)
    assert keep is None or (keep.shape == (6,) and keep.dtype == h.dtype)


@every_objective
def test_gradients_agree_with_finite_differences(objective: Objective) -> None:
    h = scores(objective, samples=3).requires_grad_()
    assert torch.autograd.gradcheck(objective, h)
    (slope,) = torch.autograd.grad(objective(h).sum(), h)
    assert slope.abs().max() > 1e-6


@every_objective
def test_temperature_divides_the_scores_everywhere(objective: Objective) -> None:
    h = 3 * scores(objective, samples=40)
    for temperature in (0.5, 2.5):
        cooled = dataclasses.replace(objective, temperature=temperature)
        torch.testing.assert_close(cooled(h), objective(h / temperature))
        kept, expected = cooled.weights(h), objective.weights(h / temperature)
        assert (kept is None) == (expected is None)
        assert kept is None or expected is None or torch.equal(kept, expected)


@every_objective
def test_temperature_is_positive(objective: Objective) -> None:
    for temperature in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"temperature > 0; got"):
            dataclasses.replace(objective, temperature=temperature)


@every_objective
def test_extreme_scores_stay_finite(objective: Objective) -> None:
    kinds = (scores(objective, dtype=torch.float32), scores(objective).bfloat16())
    for h, size in product(kinds, (50.0, 1e4)):
        point = (size * h.sign() * (1 + h.abs() / 10)).requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=h.dtype == torch.bfloat16):
            value = objective(point)
        (slope,) = torch.autograd.grad(value.sum(), point)
        assert value.dtype == torch.float32
        assert value.isfinite().all()
        assert slope.isfinite().all()


@every_objective
def test_samples_do_not_mix(objective: Objective) -> None:
    h = scores(objective, samples=6)
    alone = torch.cat([objective(h[..., i : i + 1, :]) for i in range(6)])
    torch.testing.assert_close(objective(h), alone)


@every_objective
def test_objectives_are_values(objective: Objective) -> None:
    twin = dataclasses.replace(objective)
    assert twin == objective
    assert hash(twin) == hash(objective)
    assert dataclasses.replace(objective, temperature=2.0) != objective
    with pytest.raises(dataclasses.FrozenInstanceError):
        objective.temperature = 2.0  # type: ignore[misc]


def test_mean_is_over_the_kept_samples() -> None:
    values = torch.tensor([1.0, 2.0, float("nan"), 5.0], requires_grad=True)
    mean, any_kept = weighted_mean(values, torch.tensor([1.0, 0.0, 0.0, 1.0]))
    (slope,) = torch.autograd.grad(mean, values)
    assert mean.item() == 3.0
    assert bool(any_kept)
    assert slope.tolist() == [0.5, 0.0, 0.0, 0.5]


def test_mean_over_none_kept_is_zero_and_says_so() -> None:
    values = torch.ones(3, requires_grad=True)
    mean, any_kept = weighted_mean(values, torch.zeros(3))
    (slope,) = torch.autograd.grad(mean, values)
    assert mean.item() == 0
    assert not bool(any_kept)
    assert slope.tolist() == [0, 0, 0]


def test_mean_without_a_mask_is_the_plain_mean() -> None:
    mean, any_kept = weighted_mean(torch.tensor([1.0, 2.0]), None)
    assert mean.item() == 1.5
    assert bool(any_kept)
