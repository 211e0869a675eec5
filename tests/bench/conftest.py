"""A sweep that runs in a blink: real digits, a small network, a few images."""

from pathlib import Path

import pytest
import torch

from fenchel.bench.sweep import DataChoice, MethodChoice, StreamChoice, Sweep
from fenchel.models import Checkpoint, Metadata, build


def save_network(
    path: Path,
    *,
    loss: str = "poly:epsilon=6.0",
    channels: int = 1,
    seed: int = 0,
    data: str | None = None,
) -> Path:
    """A digit network that was never trained: every part of a run works on it just the same."""
    arguments = {"width": 4, "channels": channels}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build("digit_network", **arguments)
    metadata = Metadata(
        architecture="digit_network",
        arguments=arguments,
        loss=loss,
        classes=tuple(str(k) for k in range(10)),
        data=data,
    )
    Checkpoint(model.eval(), metadata).save(path)
    return path


@pytest.fixture(scope="session")
def network(tmp_path_factory) -> Path:
    return save_network(tmp_path_factory.mktemp("networks") / "poly.safetensors")


@pytest.fixture(scope="session")
def cross_entropy_network(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("networks")
    return save_network(folder / "ce.safetensors", loss="cross-entropy")


@pytest.fixture(scope="session")
def make_network():
    return save_network


@pytest.fixture
def make_sweep(network):
    """`make_sweep(methods=[...], stream=..., data=...)`: what is not given is small."""

    def make(**choices) -> Sweep:
        given = {
            "data": [
                DataChoice(
                    name="sklearn-digits", corruptions=["fog", "contrast"], severities=[5], limit=60
                )
            ],
            "checkpoints": [str(network)],
            "methods": [
                MethodChoice(name="source"),
                MethodChoice(name="conjugate", grid={"learning_rate": [1e-3, 1e-2]}),
            ],
            "stream": StreamChoice(batch_size=25),
        }
        return Sweep(**{**given, **choices})

    return make
