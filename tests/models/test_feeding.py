"""A network that fails on what it is fed says so in one line: what was fed, what it said, what to try."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fenchel.cli.adapt import adapt_images
from fenchel.cli.mistakes import in_options, options_of
from fenchel.models import ModelFailure, explain_failure, suspicious_inputs
from fenchel.models.feeding import FOR_DATA, blamed, try_out


def small(channels: int = 3, side: int = 16) -> nn.Module:
    """A network for one size of image."""
    features = 4 * (side - 2) ** 2
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(features, 5)
    )


class InUnitRange(nn.Module):
    """A network that looks at the scale of its pixels."""

    def forward(self, images: Tensor) -> Tensor:
        if images.max() > 1:
            raise ValueError("pixels are in [0, 1]")
        return images.mean((2, 3))


BYTES = torch.arange(2 * 16 * 16 * 3).reshape(2, 16, 16, 3).to(torch.uint8)
CASES = {
    "channels last": (small(), torch.rand(2, 16, 16, 3), "Move the channels in front"),
    "0..255": (InUnitRange(), 255 * torch.rand(2, 3, 8, 8), "Divide by 255"),
    "grey for colour": (small(), torch.rand(2, 1, 16, 16), "takes colour images: leave --gray out"),
    "colour for grey": (small(1), torch.rand(2, 3, 16, 16), "takes grey images: add --gray"),
    "too large": (small(), torch.rand(2, 3, 32, 32), "runs on images of 16 x 16: pass --size 16"),
    "too small": (small(), torch.rand(2, 3, 8, 8), "runs on images of 16 x 16: pass --size 16"),
    "bytes": (small(), BYTES.permute(0, 3, 1, 2), "Give floats in [0, 1]"),
    "bytes, channels last": (small(), BYTES, "images / 255, or save bytes (uint8)"),
    "two mistakes": (
        small(1),
        torch.rand(2, 3, 28, 28),
        "the channels). It runs on images of 16 x 16",
    ),
    "vectors": (nn.Linear(7, 3), torch.rand(2, 4), "Its first layer, a Linear, takes 7 features"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_was_fed_what_it_said_and_what_to_try(case: str) -> None:
    network, inputs, advice = CASES[case]
    with pytest.raises(ModelFailure) as failed:
        try_out(network, inputs)
    told = in_options(str(failed.value), options_of(adapt_images))
    kind = str(inputs.dtype).removeprefix("torch.")
    assert f"the model failed on {kind} of shape {tuple(inputs.shape)} with values from" in told
    assert f"{type(failed.value.__cause__).__name__}: " in told
    assert advice in told
    assert "\n" not in told


def test_advice_for_data_names_no_option_for_images() -> None:
    with pytest.raises(ModelFailure, match=r"choose data of one channel, or average") as failed:
        try_out(small(1), torch.rand(2, 3, 16, 16), advice=FOR_DATA)
    assert "mode=" not in str(failed.value)


def test_a_mistake_in_the_network_is_no_matter_of_shapes() -> None:
    class Broken(nn.Module):
        calls = 0

        def forward(self, images: Tensor) -> Tensor:
            Broken.calls += 1
            raise AttributeError("no such layer\nsecond line")

    told = "AttributeError: no such layer. Mend the network"
    with pytest.raises(ModelFailure, match=told) as failed:
        try_out(Broken(), torch.rand(2, 3, 8, 8))
    assert "test_feeding.py, line" in str(failed.value)
    assert "second line" not in str(failed.value)
    assert Broken.calls == 1, "other forms of the input cannot cure it"


def test_the_network_is_blamed_only_if_it_fails_alone() -> None:
    error = RuntimeError("something else")
    assert blamed(error, torch.rand(2, 3, 16, 16), small()) is error
    found = blamed(error, torch.rand(2, 3, 8, 8), small())
    assert isinstance(found, ModelFailure)
    assert "mat1 and mat2" in str(found)
    assert explain_failure(found, torch.rand(1), small()) is found


def test_trying_leaves_the_network_and_the_random_draws_as_they_were() -> None:
    network = nn.Sequential(small(), nn.Dropout(0.5))
    network.train()
    network[0][1].eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    with pytest.raises(ModelFailure):
        try_out(network, torch.rand(2, 3, 20, 20, generator=torch.Generator()))
    try_out(network, torch.zeros(2, 3, 16, 16))
    assert torch.equal(torch.rand(2), expected)
    assert network.training
    assert not network[0][1].training
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        (torch.rand(2, 3, 8, 8), None),
        (4 * torch.randn(2, 3, 64, 64), None),
        (torch.zeros(2, 1, 8, 8), None),
        (100 * torch.rand(2, 64), None),
        (255 * torch.rand(2, 3, 8, 8), "Divide by 255"),
        (200 * torch.randn(2, 3, 8, 8), "or normalised pixels"),
        (torch.rand(2, 8, 8, 3), "Move the channels in front"),
        (torch.rand(2, 28, 28, 1), "Move the channels in front"),
        (BYTES, "while networks take floats"),
        (torch.full((2, 3, 8, 8), torch.nan), None),
    ],
)
def test_inputs_that_run_but_are_on_another_scale(inputs: Tensor, told: str | None) -> None:
    found = suspicious_inputs(inputs)
    assert found is None if told is None else told in (found or "")
