"""What the tests of the methods share: `plain_torch`, which re-states them without the library."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))

import plain_torch


def _source_network(norm: str = "batch", classes: int = plain_torch.CLASSES) -> nn.Sequential:
    """A network as training leaves it: running statistics of its own, in evaluation mode."""
    network = plain_torch.network(norm)
    for name, tensor in network.named_buffers():
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 1.5)
        elif name.endswith("running_mean"):
            tensor.uniform_(-0.2, 0.2)
    if classes != plain_torch.CLASSES:
        network[-1] = nn.Linear(network[-1].in_features, classes).double()
    return network.eval()


@pytest.fixture
def make_network() -> Callable[..., nn.Sequential]:
    """(kind of normalisation, classes) -> a trained network."""
    return _source_network


@pytest.fixture(params=["batch", "layer"])
def network(request: pytest.FixtureRequest) -> nn.Sequential:
    """A trained network with batch, then one with layer normalisation."""
    return _source_network(request.param)


@pytest.fixture
def make_stream() -> Callable[..., list[Tensor]]:
    """(batches, samples per batch) -> images in [0, 1] that drift."""
    return lambda count=plain_torch.BATCHES, size=10: plain_torch.stream(count, size)
