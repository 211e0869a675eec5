"""Objectives that treat all classes alike: learned so, or averaged over orders of the classes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import pytest
import torch
from torch import Tensor

from fenchel.objectives import Entropy, LearnedObjective, LossNetwork, Objective, Symmetrised

CLASSES = 4


@dataclass(frozen=True)
class Preferring(Objective):
    """The entropy, and a preference for some classes."""

    def value(self, h: Tensor) -> Tensor:
        return Entropy()(h) + h @ torch.arange(float(CLASSES), dtype=h.dtype)


@pytest.fixture
def h() -> Tensor:
    return 3 * torch.randn(
        7, CLASSES, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )


@pytest.fixture
def network() -> LossNetwork:
    torch.manual_seed(2)
    return LossNetwork(classes=CLASSES, embedding=16, symmetric=True).double()


def test_a_symmetric_network_does_not_see_the_order_of_the_classes(network, h):
    for order in permutations(range(CLASSES)):
        torch.testing.assert_close(network(h[:, order]), network(h))
    assert network(h).std() > 0


def test_an_ordinary_network_does(h):
    torch.manual_seed(2)
    ordinary = LossNetwork(classes=CLASSES, embedding=16).double()
    assert not torch.allclose(ordinary(h.flip(-1)), ordinary(h))


def test_a_symmetric_network_is_saved_as_one(network, h, tmp_path):
    learned = LearnedObjective(network)
    learned.save(tmp_path / "learned.safetensors")
    again = LearnedObjective.load(tmp_path / "learned.safetensors")
    assert again == learned
    assert torch.equal(again(h), learned(h))


def test_sizes_of_ordinary_networks_are_those_of_older_files():
    assert "symmetric" not in LossNetwork(classes=CLASSES).sizes


def test_symmetrising_removes_preferences_and_nothing_else(h):
    sums = h.sum(-1) * torch.arange(CLASSES).double().mean()
    found = Symmetrised(objective=Preferring(), rounds=1)(h)
    torch.testing.assert_close(found, Entropy()(h) + sums)


def test_symmetrising_is_the_mean_over_its_orders(h):
    """With many rounds it comes near the mean over all orders, written as a loop."""
    torch.manual_seed(3)
    learned = LearnedObjective(LossNetwork(classes=CLASSES, embedding=16).double(), temperature=2.0)
    every = [learned(h[:, order]) for order in permutations(range(CLASSES))]
    exact = torch.stack(every).mean(0)
    plain = (learned(h) - exact).abs().max()
    found = Symmetrised(objective=learned, rounds=200)(h)
    assert (found - exact).abs().max() < 0.1 * plain
