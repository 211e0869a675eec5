"""Small networks, streams of images, and a check that a model was left as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fenchel
from fenchel.adapters import Adapter

CLASSES = 4
ANY = {"margin": 1.0}
VIEWS = {"input_range": (0.0, 1.0)}
OPTIONS: dict[str, dict[str, Any]] = {
    "hard": {"threshold": 0.26},
    "memo": VIEWS,
    "eta": {**ANY, "similarity": 1.0},
    "eata": {**ANY, "similarity": 1.0},
    "rdumb": {**ANY, "similarity": 1.0, "every": 2},
    "sar": ANY,
    "deyo": {**ANY, "drop": -1.0},
    "roid": VIEWS,
    "cotta": {**VIEWS, "views": 2},
    "rotta": {**VIEWS, "bank": 8},
    "protected": {"protect": "auto"},
}
"""Options under which every method does something to batches of an untrained network: gates are open.

The method `protected` comes with all that protects, as it does for whoever names no method."""


def _network(seed: int = 0, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> nn.Module:
    """Two convolutions, normalised, with running statistics and affine parameters off their defaults."""
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        norm(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2),
        norm(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(8 * 9, CLASSES),
    )
    for name, tensor in network.state_dict().items():
        if name.endswith(("1.weight", "4.weight", "running_var")):
            tensor.uniform_(0.5, 1.5)
        elif name.endswith("running_mean"):
            tensor.uniform_(-0.2, 0.2)
    return network


def _stream(count: int, size: int = 20, seed: int = 1) -> list[Tensor]:
    """Batches of images in [0, 1], each a little brighter than the last."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(count, size, 3, 8, 8, generator=generator)
    return [batch * 0.7 + 0.3 * index / count for index, batch in enumerate(images)]


def _adapt(model: nn.Module, method: str = "conjugate", **options: Any) -> Adapter:
    """`fenchel.adapt` with settings under which a few batches make a clear difference."""
    options.setdefault("trained_with", fenchel.PolyLoss(epsilon=2.0))
    optimizer = options.get("optimizer", "sgd")
    if isinstance(optimizer, str | type):  # any other brings its own rate
        options.setdefault("learning_rate", 0.02)
    if method == "eata" and "fisher" not in options:
        options.setdefault("source_images", torch.cat(_stream(2, seed=9)))
    return fenchel.adapt(model, method=method, **{**OPTIONS.get(method, {}), **options})


def _portrait(model: nn.Module) -> dict[str, Any]:
    """Everything about a model that an adapter must leave alone."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        "values": {name: value.detach().clone() for name, value in tensors.items()},
        "identities": {name: id(value) for name, value in tensors.items()},
        "gradients": {name: value.grad for name, value in model.named_parameters()},
        "flags": {name: value.requires_grad for name, value in model.named_parameters()},
        "training": {name: module.training for name, module in model.named_modules()},
        "keys": list(model.state_dict()),
        "hooks": {
            name: (len(module._forward_hooks), len(module._forward_pre_hooks))
            for name, module in model.named_modules()
        },
        "attributes": {name: sorted(vars(module)) for name, module in model.named_modules()},
    }


@contextlib.contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    before = _portrait(model)
    yield
    after = _portrait(model)
    for name, value in before.pop("values").items():
        assert torch.equal(value, after["values"][name]), name
    del after["values"]
    assert after == before


@pytest.fixture
def make_network() -> Callable[..., nn.Module]:
    return _network


@pytest.fixture
def make_stream() -> Callable[..., list[Tensor]]:
    return _stream


@pytest.fixture
def adapt() -> Callable[..., Adapter]:
    return _adapt


@pytest.fixture
def untouched() -> Callable[[nn.Module], contextlib.AbstractContextManager[None]]:
    """A block that must leave a model bit-identical, flags, hooks and gradients included."""
    return _untouched


@pytest.fixture
def same_state() -> Callable[[Adapter, Adapter], None]:
    """Two adapters must hold the same state, bit for bit."""

    def check(one: Adapter, other: Adapter) -> None:
        mine, theirs = one.state_dict(), other.state_dict()
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            assert torch.equal(value, theirs[name]), name

    return check
