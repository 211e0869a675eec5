"""Blurs, against loops over single pixels given the same draws."""

import math

import numpy as np
import pytest
from scipy import ndimage

from fenchel.data.corruptions import CORRUPTIONS, SEVERITIES, Draws, corrupt
from fenchel.data.corruptions.blur import copy_from_nearby, disk
from fenchel.data.corruptions.motion import streak


def floor_bytes(intensities):
    return np.uint8(np.clip(intensities, 0, 1) * 255)


def gaussian_weights(sigma, reach):
    weights = np.array([math.exp(-(i**2) / (2 * sigma**2)) for i in range(-reach, reach + 1)])
    return weights / weights.sum()


def naive_gaussian(intensities, sigma):
    """Edges repeated, cut off at four sigma."""
    reach = int(4 * sigma + 0.5)
    weights = gaussian_weights(sigma, reach)
    for axis in (0, 1):
        padding = [(0, 0)] * 3
        padding[axis] = (reach, reach)
        padded = np.pad(intensities, padding, mode="edge")
        size = intensities.shape[axis]
        intensities = sum(
            weight * np.take(padded, range(i, i + size), axis=axis)
            for i, weight in enumerate(weights)
        )
    return intensities


def naive_glass(image, strength, draws):
    sigma, reach, iterations = strength
    pixels = np.uint8(naive_gaussian(image / 255, sigma) * 255)
    height, width = image.shape[:2]
    for _ in range(iterations):
        shape = (height - 2 * reach, width - 2 * reach, 2)
        offsets = draws.integers(-reach, reach, shape)[0]
        for row in range(height - reach, reach, -1):
            for column in range(width - reach, reach, -1):
                down, right = offsets[row - reach - 1, column - reach - 1]
                pixels[row, column] = pixels[row + down, column + right]
    return floor_bytes(naive_gaussian(pixels / 255, sigma))


def naive_motion(image, radius, sigma, degrees):
    height, width = image.shape[:2]
    total, weights = np.zeros(image.shape), 0.0
    for step in range(2 * radius + 1):
        weight = math.exp(-(step**2) / (2 * sigma**2))
        down = math.ceil(step * math.sin(math.radians(degrees)) - 0.5)
        right = math.ceil(step * math.cos(math.radians(degrees)) - 0.5)
        for row in range(height):
            for column in range(width):
                source_row = min(max(row + down, 0), height - 1)
                source_column = min(max(column + right, 0), width - 1)
                total[row, column] += weight * image[source_row, source_column]
        weights += weight
    return np.uint8(np.floor(total / weights + 0.5))


def naive_zoom(image, factors):
    size = image.shape[0]
    intensities = image / 255
    total = intensities.copy()
    for factor in factors:
        crop = math.ceil(size / factor)
        top = (size - crop) // 2
        middle = intensities[top : top + crop, top : top + crop]
        enlarged = ndimage.zoom(middle, (factor, factor, 1), order=1)
        trim = (len(enlarged) - size) // 2
        total += enlarged[trim : trim + size, trim : trim + size]
    return floor_bytes(total / (len(factors) + 1))


def naive_defocus(image, kernel):
    reach = len(kernel) // 2
    padded = np.pad(image / 255, ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    result = np.empty(image.shape)
    for row, column in np.ndindex(image.shape[:2]):
        window = padded[row : row + 2 * reach + 1, column : column + 2 * reach + 1]
        result[row, column] = (window * kernel[..., None]).sum(axis=(0, 1))
    return floor_bytes(result)


def assert_equal_up_to_rounding(result, expected):
    """Sums in another order differ in the last bit, which rounding down turns into a level."""
    difference = np.abs(result.astype(int) - expected)
    assert difference.max() <= 1
    assert difference.mean() < 0.02


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_glass_blur_equals_a_loop_over_pixels(severity, constants, small):
    strength = CORRUPTIONS["glass_blur"].strength(constants, severity)
    result = corrupt(small[:2], "glass_blur", severity, constants=constants)
    for index in range(2):
        draws = Draws(0, "glass_blur", severity, [index])
        assert_equal_up_to_rounding(result[index], naive_glass(small[index], strength, draws))


def test_glass_blur_copies_pixels():
    """A swap would keep every value; a copy loses some and doubles others."""
    image = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    offsets = Draws(0, "x", 1, [0]).integers(-2, 2, (12, 12, 2))
    copied = copy_from_nearby(image, 2, offsets)
    assert len(np.unique(copied)) < 256
    assert set(np.unique(copied)) <= set(np.unique(image))


def test_glass_blur_follows_chains_of_copies():
    """Each inner pixel takes the one to its right, which was itself replaced before."""
    image = np.arange(36, dtype=np.uint8).reshape(1, 6, 6, 1)
    offsets = np.zeros((1, 2, 2, 2), dtype=int)
    offsets[..., 1] = 1
    copied = copy_from_nearby(image, 2, offsets)[0, ..., 0]
    expected = image[0, ..., 0].copy()
    expected[3:5, 3:5] = expected[3:5, 5:6]
    np.testing.assert_array_equal(copied, expected)


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("severity", [1, 5])
def test_motion_blur_equals_a_loop_over_pixels(severity, constants, small):
    radius, sigma = CORRUPTIONS["motion_blur"].strength(constants, severity)
    result = corrupt(small[:1], "motion_blur", severity, constants=constants)
    angle = Draws(0, "motion_blur", severity, [0]).uniform(-45, 45)[0]
    np.testing.assert_array_equal(result[0], naive_motion(small[0], radius, sigma, angle))


@pytest.mark.parametrize(
    ("degrees", "first", "sixth", "last"),
    [
        (
            -31,
            [68, 111, 148, 136, 145, 149, 103, 86, 67, 24],
            [167, 95, 72, 143, 174, 141, 105, 37, 99, 95],
            [140, 132, 73, 88, 121, 152, 81, 58, 125, 168],
        ),
        (
            58,
            [121, 122, 178, 146, 109, 183, 118, 126, 187, 145],
            [119, 56, 67, 147, 135, 112, 124, 85, 116, 112],
            [157, 102, 35, 38, 76, 60, 34, 77, 162, 206],
        ),
        (
            -112,
            [0, 30, 124, 130, 120, 179, 151, 107, 132, 71],
            [161, 112, 102, 78, 188, 143, 161, 103, 110, 105],
            [127, 167, 99, 50, 75, 171, 92, 83, 62, 169],
        ),
    ],
)
def test_streaks_equal_those_of_imagemagick(degrees, first, sixth, last):
    """Rows of `-motion-blur 3x2` by ImageMagick 7.1.2, with which the published data were made."""
    places = np.arange(100)
    image = ((places**2 * 37 + 11 * places) % 256).astype(np.uint8).reshape(1, 10, 10, 1)
    result = streak(image, 3, 2, np.array([degrees]))[0, ..., 0]
    np.testing.assert_array_equal(result[[0, 5, 9]], [first, sixth, last])


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_zoom_blur_equals_the_mean_of_zoomed_crops(severity, constants, small):
    factors = CORRUPTIONS["zoom_blur"].strength(constants, severity)
    result = corrupt(small[:2], "zoom_blur", severity, constants=constants)
    for image, blurred in zip(small, result, strict=False):
        assert_equal_up_to_rounding(blurred, naive_zoom(image, factors))


def test_large_images_are_zoomed_in_several_products(small, monkeypatch):
    whole = corrupt(small, "zoom_blur", 5)
    monkeypatch.setattr("fenchel.data.corruptions.zoom.MATRIX_ENTRIES", 4 * 32 * 32 * 4)
    assert_equal_up_to_rounding(corrupt(small, "zoom_blur", 5), whole)


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_defocus_blur_equals_a_loop_over_pixels(severity, constants, small):
    kernel = disk(*CORRUPTIONS["defocus_blur"].strength(constants, severity))
    result = corrupt(small[:1], "defocus_blur", severity, constants=constants)
    assert_equal_up_to_rounding(result[0], naive_defocus(small[0], kernel))


@pytest.mark.parametrize(
    ("radius", "size", "inside"), [(0.3, 17, 1), (1, 17, 5), (1.5, 17, 9), (10, 21, 317)]
)
def test_the_disk_covers_the_pixels_within_its_radius(radius, size, inside):
    kernel = disk(radius, 1e-3)
    assert kernel.shape == (size, size)
    assert (kernel > 0).sum() == inside
    np.testing.assert_allclose(kernel[kernel > 0], 1 / inside, rtol=1e-6)


@pytest.mark.parametrize(
    ("radius", "total"), [(0.3, 1), (1.5, 1), (6, 1), (8, 1.013), (10, 1.0108)]
)
def test_a_disk_that_fills_its_frame_brightens_as_published(radius, total):
    assert disk(radius, 0.5).sum() == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_blur_equals_two_passes_of_weights(severity, constants, small):
    sigma = CORRUPTIONS["gaussian_blur"].strength(constants, severity)
    result = corrupt(small[:1], "gaussian_blur", severity, constants=constants)
    assert_equal_up_to_rounding(result[0], floor_bytes(naive_gaussian(small[0] / 255, sigma)))
