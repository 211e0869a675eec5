"""The ImageNet corruptions at 224 pixels against the independent package imagecorruptions.

Where no randomness is involved, bytes are compared; elsewhere how much of the image changes, in
which direction and how coarsely. Its elastic transform and its zooms off the centre are another
algorithm.
"""

import numpy as np
import pytest
from PIL import Image

from fenchel.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from fenchel.data.corruptions.blur import disk
from fenchel.data.corruptions.motion import streak

theirs = pytest.importorskip("imagecorruptions.corruptions")


def other(name, image, severity):
    return np.uint8(getattr(theirs, name)(Image.fromarray(image), severity))


def assert_equal_up_to_rounding(result, expected):
    difference = np.abs(result.astype(int) - expected)
    assert difference.max() <= 1
    assert difference.mean() < 0.001


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize(
    "name",
    ["defocus_blur", "gaussian_blur", "brightness", "contrast", "saturate", "jpeg_compression"],
)
def test_images_without_randomness_agree(name, severity, large):
    result = corrupt(large[:1], name, severity, constants="imagenet")
    assert_equal_up_to_rounding(result[0], other(name, large[0], severity))


@pytest.mark.parametrize("severity", [2, 5])
def test_pixelate_agrees_where_pixels_are_whole_blocks(severity, large):
    result = corrupt(large[:1], "pixelate", severity, constants="imagenet")
    np.testing.assert_array_equal(result[0], other("pixelate", large[0], severity))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_disks_agree(severity):
    radius, softness = CORRUPTIONS["defocus_blur"].strength("imagenet", severity)
    np.testing.assert_allclose(disk(radius, softness), theirs.disk(radius, softness), atol=1e-8)


@pytest.mark.parametrize("degrees", [-131.3, -60.2, -44, -3, 17.7, 44.9])
def test_streaks_agree(degrees, large):
    expected = np.rint(theirs._motion_blur(large[0], 15, 8, degrees))
    result = streak(large[:1], 15, 8, np.array([degrees]))[0]
    assert_equal_up_to_rounding(result, expected)


def measures(images, clean):
    """Mean change, its size, the size of its fine part, and the share of pixels it touches."""
    change = images.astype(float) - clean
    fine = np.abs(np.diff(images.astype(float), axis=1)).mean()
    return np.array([change.mean(), np.abs(change).mean(), fine, 100 * (change != 0).mean()])


@pytest.mark.parametrize("severity", [1, 3, 5])
@pytest.mark.parametrize(
    ("name", "repeats", "tolerance"),
    [
        ("gaussian_noise", 1, 0.02),
        ("shot_noise", 1, 0.02),
        ("impulse_noise", 1, 0.03),
        ("speckle_noise", 1, 0.02),
        ("glass_blur", 1, 0.02),
        ("spatter", 4, 0.2),
        ("fog", 40, 0.15),
    ],
)
def test_random_corruptions_agree_in_their_measures(name, repeats, tolerance, severity, large):
    np.random.seed(severity)
    images = large[:1].repeat(repeats, axis=0)
    ours = measures(corrupt(images, name, severity, constants="imagenet"), images)
    expected = measures(np.stack([other(name, x, severity) for x in images]), images)
    np.testing.assert_allclose(ours, expected, rtol=tolerance, atol=0.5)
