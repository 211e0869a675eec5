"""Shifts that settings are chosen on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fenchel.calibration.shifting import PLAIN_SHIFTS, SHIFTS, Shifting
from fenchel.data.corruptions import TEST_CORRUPTIONS, corrupt


def images(channels: int = 3, side: int = 16) -> torch.Tensor:
    return torch.rand(6, channels, side, side)


def test_no_shift_is_a_test_corruption() -> None:
    assert not {*SHIFTS, *PLAIN_SHIFTS} & set(TEST_CORRUPTIONS)


@pytest.mark.parametrize("kind", SHIFTS)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_shift_changes_images_and_keeps_their_range(kind: str, channels: int) -> None:
    x = images(channels)
    made = Shifting.of(x).shifted(x, kind, seed=0)
    assert made.shape == x.shape
    assert made.dtype == x.dtype
    assert float(made.min()) >= 0
    assert float(made.max()) <= 1
    grey_has_no_colour = channels == 1 and kind == "saturate"
    assert grey_has_no_colour or float((made - x).abs().mean()) > 0.01
    assert torch.equal(made, Shifting.of(x).shifted(x, kind, seed=0))


def test_corruptions_are_those_of_the_library_at_their_strongest() -> None:
    x = torch.randint(0, 256, (4, 3, 16, 16)) / 255
    array = (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    expected = corrupt(np.ascontiguousarray(array), "speckle_noise", 5, seed=3)
    made = Shifting.of(x).shifted(x, "speckle_noise", seed=3)
    assert np.array_equal(
        (made * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy(), expected
    )


def test_normalised_images_are_shifted_as_the_pixels_they_were() -> None:
    x, mean, std = images(), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    offset, scale = torch.tensor(mean)[:, None, None], torch.tensor(std)[:, None, None]
    normalised = Shifting.of((x - offset) / scale, mean=mean, std=std)
    made = normalised.shifted((x - offset) / scale, "gaussian_blur", seed=0)
    assert torch.allclose(
        made * scale + offset, Shifting.of(x).shifted(x, "gaussian_blur", 0), atol=1e-6
    )


def test_images_of_an_unknown_range_are_refused() -> None:
    with pytest.raises(ValueError, match="input_range"):
        Shifting.of(images() * 255)


@pytest.mark.parametrize("kind", PLAIN_SHIFTS)
def test_samples_that_are_no_images_are_shifted_by_about_their_spread(kind: str) -> None:
    x = 3 * torch.randn(500, 7)
    shifting = Shifting.of(x)
    assert shifting.kinds == PLAIN_SHIFTS
    apart = (shifting.shifted(x, kind, seed=1) - x).square().mean().sqrt()
    assert 0.2 < float(apart / x.std()) < 1.5
