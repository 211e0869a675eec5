"""Colour, shape and detail, against per-image versions given the same draws."""

import colorsys
from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from fenchel.data.corruptions import CORRUPTIONS, SEVERITIES, Draws, corrupt
from fenchel.data.corruptions.colour import hsv_to_rgb, rgb_to_hsv
from fenchel.data.corruptions.warp import affine, bilinear, mirror, reflect


def floor_bytes(intensities):
    return np.uint8(np.clip(intensities, 0, 1) * 255)


def assert_equal_up_to_rounding(result, expected):
    difference = np.abs(result.astype(int) - expected)
    assert difference.max() <= 1
    assert difference.mean() < 0.02


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_contrast_shrinks_each_channel_about_its_mean(severity, constants, small):
    factor = CORRUPTIONS["contrast"].strength(constants, severity)
    result = corrupt(small, "contrast", severity, constants=constants)
    for image, pale in zip(small, result, strict=True):
        x = image / 255
        means = [x[..., channel].mean() for channel in range(3)]
        assert_equal_up_to_rounding(pale, floor_bytes((x - means) * factor + means))


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_saturate_scales_the_saturation_of_each_pixel(severity, constants, small):
    factor, offset = CORRUPTIONS["saturate"].strength(constants, severity)
    result = CORRUPTIONS["saturate"].function(small[:1], (factor, offset), None)
    expected = np.empty(small[0].shape)
    for place in np.ndindex(32, 32):
        hue, saturation, value = colorsys.rgb_to_hsv(*(small[0][place] / 255))
        saturation = min(max(saturation * factor + offset, 0), 1)
        expected[place] = colorsys.hsv_to_rgb(hue, saturation, value)
    np.testing.assert_allclose(result[0], expected, atol=1e-12)
    rounded = corrupt(small[:1], "saturate", severity, constants=constants)
    np.testing.assert_array_equal(rounded, floor_bytes(result))


def test_hue_saturation_and_value_go_there_and_back():
    levels = np.linspace(0, 1, 6)
    colours = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(-1, 3)
    hue, saturation, value = rgb_to_hsv(colours)
    expected = np.array([colorsys.rgb_to_hsv(*colour) for colour in colours]).T
    np.testing.assert_allclose([hue, saturation, value], expected, atol=1e-12)
    np.testing.assert_allclose(hsv_to_rgb(hue, saturation, value), colours, atol=1e-12)


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_pixelate_is_two_box_filters(severity, constants, small):
    factor = CORRUPTIONS["pixelate"].strength(constants, severity)
    few = int(32 * factor)
    result = corrupt(small, "pixelate", severity, constants=constants)
    for image, coarse in zip(small, result, strict=True):
        shrunk = Image.fromarray(image).resize((few, few), Image.Resampling.BOX)
        expected = shrunk.resize((32, 32), Image.Resampling.BOX)
        np.testing.assert_array_equal(coarse, np.asarray(expected))


def test_pixelate_by_a_whole_factor_averages_blocks():
    image = np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3), dtype=np.uint8)
    blocks = image.reshape(8, 4, 8, 4, 3).mean(axis=(1, 3))
    expected = np.floor(blocks + 0.5).repeat(4, axis=0).repeat(4, axis=1)
    result = corrupt(image, "pixelate", 5, constants="imagenet")
    assert np.abs(result[0] - expected).max() <= 1


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_jpeg_compression_has_its_quality(severity, constants, small):
    quality = CORRUPTIONS["jpeg_compression"].strength(constants, severity)
    file = BytesIO()
    Image.fromarray(small[1]).save(file, "JPEG", quality=quality)
    result = corrupt(small[:2], "jpeg_compression", severity, constants=constants)
    np.testing.assert_array_equal(result[1], np.asarray(Image.open(file)))


def naive_elastic(image, strength, draws):
    """Solve for the affine map, then two interpolations by SciPy, without the 1/32 pixel grid."""
    height, width = image.shape[:2]
    side = min(height, width)
    displacement, smoothness, movement = (share * side for share in strength)
    middle, reach = np.array([height // 2, width // 2]), side // 3
    points = np.array(
        [middle + reach, middle + reach * np.array([1, -1]), middle - reach], dtype=float
    )
    moved = points + draws.uniform(-movement, movement, (3, 2))[0]
    to_original = np.linalg.solve(np.column_stack([moved, np.ones(3)]), points)
    right, down = np.meshgrid(np.arange(width), np.arange(height))
    places = np.stack([right, down, np.ones_like(right)], axis=-1) @ to_original
    fields = [
        ndimage.gaussian_filter(field, smoothness, mode="reflect", truncate=3) * displacement
        for field in draws.uniform(-1, 1, (2, height, width))[0]
    ]
    result = np.empty(image.shape)
    for channel in range(image.shape[2]):
        plane = image[..., channel] / 255
        plane = ndimage.map_coordinates(
            plane, [places[..., 1], places[..., 0]], order=1, mode="mirror"
        )
        where = [down + fields[1], right + fields[0]]
        result[..., channel] = ndimage.map_coordinates(plane, where, order=1, mode="reflect")
    return floor_bytes(result)


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_elastic_transform_equals_a_version_for_one_image(severity, constants, small):
    strength = CORRUPTIONS["elastic_transform"].strength(constants, severity)
    result = corrupt(small[:3], "elastic_transform", severity, constants=constants)
    for index in range(3):
        draws = Draws(0, "elastic_transform", severity, [index])
        expected = naive_elastic(small[index], strength, draws)
        difference = np.abs(result[index].astype(int) - expected)
        # An edge of 200 levels moved by 1/64 pixel in each direction is off by six.
        assert difference.max() <= 7
        assert difference.mean() < 0.8


def test_elastic_constants_are_the_published_ones_at_the_published_sizes():
    published = (
        (0, 0, 2.56),
        (1.6, 6.4, 2.24),
        (2.56, 1.92, 1.92),
        (3.2, 1.28, 1.6),
        (3.2, 0.96, 0.96),
    )
    shares = CORRUPTIONS["elastic_transform"].constants["cifar"]
    np.testing.assert_allclose(np.array(shares) * 32, published)
    shares = CORRUPTIONS["elastic_transform"].constants["imagenet"]
    np.testing.assert_allclose(np.array(shares)[0] * 224, (488, 170.8, 24.4))


@pytest.mark.parametrize(("fold", "mode"), [(reflect, "reflect"), (mirror, "mirror")])
def test_bilinear_reading_equals_scipy_far_beyond_the_border(fold, mode):
    generator = np.random.default_rng(0)
    images = generator.random((2, 5, 7, 3))
    rows, columns = generator.uniform(-14, 18, (2, 2, 5, 7))
    result = bilinear(images, rows, columns, fold)
    for n in range(2):
        for channel in range(3):
            expected = ndimage.map_coordinates(
                images[n, ..., channel], [rows[n], columns[n]], order=1, mode=mode
            )
            np.testing.assert_allclose(result[n, ..., channel], expected, atol=1e-12)


def test_affine_without_movement_changes_nothing():
    images = np.random.default_rng(0).random((2, 9, 9, 3))
    points = np.array([[7.0, 7.0], [7.0, 1.0], [1.0, 1.0]])
    still = np.repeat(points[None], 2, axis=0)
    np.testing.assert_allclose(affine(images, points, still), images, atol=1e-12)


def test_affine_moves_the_image_with_its_points():
    images = np.random.default_rng(0).random((1, 9, 9, 1))
    points = np.array([[7.0, 7.0], [7.0, 1.0], [1.0, 1.0]])
    moved = affine(images, points, points[None] + [2, 1])
    np.testing.assert_allclose(moved[:, 1:, 2:], images[:, :-1, :-2], atol=1e-12)
