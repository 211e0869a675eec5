"""Snow, fog, frost, light and splashes, against per-image versions given the same draws."""

import colorsys
import math

import numpy as np
import pytest
from scipy import ndimage

from fenchel.data.corruptions import CORRUPTIONS, SEVERITIES, Draws, corrupt
from fenchel.data.corruptions.motion import streak
from fenchel.data.corruptions.plasma import plasma


def floor_bytes(intensities):
    return np.uint8(np.clip(intensities, 0, 1) * 255)


def assert_equal_up_to_rounding(result, expected):
    difference = np.abs(result.astype(int) - expected)
    assert difference.max() <= 1
    assert difference.mean() < 0.02


def naive_plasma(size, decay, noise):
    """Diamond-square, point by point, on a map that wraps around."""
    heights, noise = np.zeros((size, size)), iter(noise)
    step, spread = size, 100.0

    def mean_of(*places):
        mean = sum(heights[row % size, column % size] for row, column in places) / 4
        return mean + spread * spread * next(noise)

    while step >= 2:
        half = step // 2
        grid = [(row, column) for row in range(0, size, step) for column in range(0, size, step)]
        for r, c in grid:
            corners = (r, c), (r + step, c), (r, c + step), (r + step, c + step)
            heights[r + half, c + half] = mean_of(*corners)
        for r, c in grid:
            around = (r, c), (r, c + step), (r - half, c + half), (r + half, c + half)
            heights[r, c + half] = mean_of(*around)
        for r, c in grid:
            around = (r, c), (r + step, c), (r + half, c - half), (r + half, c + half)
            heights[r + half, c] = mean_of(*around)
        step, spread = half, spread / decay
    return (heights - heights.min()) / (heights.max() - heights.min())


@pytest.mark.parametrize(("size", "decay"), [(2, 3), (8, 1.75), (32, 2.5)])
def test_plasma_equals_a_loop_over_points(size, decay):
    clouds = plasma(size, decay, Draws(0, "x", 1, range(3)))
    noise = Draws(0, "x", 1, range(3)).uniform(-1, 1, (size * size - 1,))
    for cloud, values in zip(clouds, noise, strict=True):
        np.testing.assert_allclose(cloud, naive_plasma(size, decay, values), atol=1e-12)


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_fog_keeps_the_brightest_value_in_place(severity, constants, small):
    density, decay = CORRUPTIONS["fog"].strength(constants, severity)
    result = corrupt(small[:1], "fog", severity, constants=constants)
    noise = Draws(0, "fog", severity, [0]).uniform(-1, 1, (32 * 32 - 1,))[0]
    x = small[0] / 255
    foggy = x + density * naive_plasma(32, decay, noise)[..., None]
    assert_equal_up_to_rounding(result[0], floor_bytes(foggy * x.max() / (x.max() + density)))


def test_fog_maps_are_the_next_power_of_two_and_cropped():
    images = np.full((1, 20, 40, 3), 100, dtype=np.uint8)
    cloud = plasma(64, 1.75, Draws(0, "fog", 5, [0]))[:, :20, :40, None]
    x = images / 255
    expected = floor_bytes((x + 1.5 * cloud) * x.max() / (x.max() + 1.5))
    np.testing.assert_array_equal(corrupt(images, "fog", 5), expected)


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_snow_equals_a_version_for_one_image(severity, constants, small):
    strength = CORRUPTIONS["snow"].strength(constants, severity)
    mean, scale, zoom, threshold, radius, sigma, kept = strength
    draws = Draws(0, "snow", severity, [0])
    layer = draws.normal(mean, scale, (32, 32))[0]
    crop = math.ceil(32 / zoom)
    top = (32 - crop) // 2
    layer = ndimage.zoom(layer[top : top + crop, top : top + crop], zoom, order=1)
    trim = (len(layer) - 32) // 2
    layer = layer[trim : trim + 32, trim : trim + 32]
    layer[layer < threshold] = 0
    flakes = floor_bytes(layer)[None, ..., None]
    flakes = streak(flakes, radius, sigma, draws.uniform(-135, -45))[0] / 255
    x = small[0] / 255
    grey = (x @ [0.299, 0.587, 0.114])[..., None]
    x = kept * x + (1 - kept) * np.maximum(x, 1.5 * grey + 0.5)
    result = corrupt(small[:1], "snow", severity, constants=constants)
    expected = floor_bytes(x + flakes + np.rot90(flakes, 2))
    assert_equal_up_to_rounding(result[0], expected)


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_brightness_adds_to_the_value_of_each_pixel(severity, constants, small):
    offset = CORRUPTIONS["brightness"].strength(constants, severity)
    result = corrupt(small[:1], "brightness", severity, constants=constants)
    expected = np.empty(small[0].shape)
    for place in np.ndindex(32, 32):
        hue, saturation, value = colorsys.rgb_to_hsv(*(small[0][place] / 255))
        expected[place] = colorsys.hsv_to_rgb(hue, saturation, min(value + offset, 1))
    assert_equal_up_to_rounding(result[0], floor_bytes(expected))


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("severity", [4, 5])
def test_mud_hides_the_scene_where_its_mask_is_dense(severity, constants, small):
    strength = CORRUPTIONS["spatter"].strength(constants, severity)
    mean, scale, sigma, threshold, softness, _ = strength
    noise = Draws(0, "spatter", severity, [0]).normal(mean, scale, (32, 32))[0]
    liquid = ndimage.gaussian_filter(noise, sigma, mode="nearest")
    mask = ndimage.gaussian_filter((liquid > threshold) * 1.0, softness, mode="nearest")
    mask[mask < 0.8] = 0
    mud = np.array([63, 42, 20]) / 255
    expected = small[0] / 255 * (1 - mask[..., None]) + mud * mask[..., None]
    result = corrupt(small[:1], "spatter", severity, constants=constants)
    assert_equal_up_to_rounding(result[0], floor_bytes(expected))


@pytest.mark.parametrize("severity", [1, 2, 3])
def test_water_is_pale_turquoise_and_only_brightens(severity):
    black = np.zeros((8, 32, 32, 3), dtype=np.uint8)
    water = corrupt(black, "spatter", severity).astype(int)
    red, green, blue = np.moveaxis(water, -1, 0)
    np.testing.assert_array_equal(green, blue)
    assert np.abs(red - green * 175 / 238).max() <= 1
    # The brightest drop of each image has the full strength.
    np.testing.assert_array_equal(green.max(axis=(1, 2)), int(0.5 * 238))
    assert 0 < (green > 0).mean() < 0.6
