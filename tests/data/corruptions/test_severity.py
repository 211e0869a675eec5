"""Damage grows with severity where the published constants make it grow."""

import numpy as np
import pytest

from fenchel.data.corruptions import SEVERITIES, corrupt

# Glass, saturate, spatter, elastic, frost and the rest are not monotone as published.
MONOTONE = [
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "speckle_noise",
    "gaussian_blur",
    "defocus_blur",
    "contrast",
    "brightness",
    "jpeg_compression",
    "pixelate",
]


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", MONOTONE)
def test_pixel_distance_grows_with_severity(name, constants, small, large):
    images = small if constants == "cifar" else large
    distances = [
        np.abs(corrupt(images, name, severity, constants=constants).astype(float) - images).mean()
        for severity in SEVERITIES
    ]
    assert distances[0] > 0
    assert distances == sorted(set(distances))
