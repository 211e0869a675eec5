"""Noise, against loops over single values given the same draws."""

import numpy as np
import pytest

from fenchel.data.corruptions import CORRUPTIONS, SEVERITIES, Draws, corrupt


def floor_byte(intensity: float) -> int:
    return int(min(max(intensity, 0.0), 1.0) * 255)


def naive(name, image, strength, draws):
    shape = image.shape
    result = np.empty_like(image)
    if name == "shot_noise":
        counts = draws.poisson(image[None] / 255 * strength)[0]
    elif name == "impulse_noise":
        chance = draws.uniform(0, 1, shape)[0]
    else:
        noise = draws.normal(0, strength, shape)[0]
    for place in np.ndindex(shape):
        x = image[place] / 255
        if name == "gaussian_noise":
            x = x + noise[place]
        elif name == "speckle_noise":
            x = x + x * noise[place]
        elif name == "shot_noise":
            x = counts[place] / strength
        elif chance[place] < strength:
            x = 1 if chance[place] < strength / 2 else 0
        result[place] = floor_byte(x)
    return result


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", ["gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"])
def test_noise_equals_a_loop_over_values(name, constants, small):
    for severity in SEVERITIES:
        strength = CORRUPTIONS[name].strength(constants, severity)
        result = corrupt(small[:1], name, severity, constants=constants)
        expected = naive(name, small[0], strength, Draws(0, name, severity, [0]))
        np.testing.assert_array_equal(result[0], expected)


@pytest.mark.parametrize(("severity", "scale"), list(enumerate((0.04, 0.06, 0.08, 0.09, 0.10), 1)))
def test_gaussian_noise_has_its_standard_deviation(severity, scale):
    grey = np.full((8, 32, 32, 3), 128, dtype=np.uint8)
    noise = corrupt(grey, "gaussian_noise", severity) / 255
    assert noise.std() == pytest.approx(scale, rel=0.02)


def test_impulse_noise_hits_its_share_with_even_odds():
    grey = np.full((20, 32, 32, 3), 128, dtype=np.uint8)
    result = corrupt(grey, "impulse_noise", 5)
    assert set(np.unique(result)) == {0, 128, 255}
    assert (result == 0).mean() == pytest.approx(0.035, abs=0.003)
    assert (result == 255).mean() == pytest.approx(0.035, abs=0.003)


def test_channels_are_hit_independently():
    grey = np.full((4, 32, 32, 3), 128, dtype=np.uint8)
    noise = corrupt(grey, "gaussian_noise", 3).reshape(-1, 3).astype(float)
    assert np.abs(np.corrcoef(noise.T) - np.eye(3)).max() < 0.05
