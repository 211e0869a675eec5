"""Frost: textures from a folder, textures of our own, and how they are laid over the scene."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fenchel.data.corruptions import CORRUPTIONS, SEVERITIES, Draws, corrupt
from fenchel.data.corruptions.textures import FROSTS, frost_textures, grown_textures, read_textures


@pytest.fixture
def folder(tmp_path):
    """Six textures, each with its own blue and with its coordinates in red and green."""
    down, right = np.mgrid[0:200, 0:250]
    for number in range(1, 7):
        pixels = np.stack([down, right, np.full_like(down, 40 * number)], axis=-1)
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / f"frost{number}.png")
    (tmp_path / "notes.txt").write_text("not a texture")
    return tmp_path


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
@pytest.mark.parametrize("severity", SEVERITIES)
def test_frost_mixes_in_a_piece_of_a_texture(severity, constants, folder, small):
    scene_weight, frost_weight, stride = CORRUPTIONS["frost"].strength(constants, severity)
    result = corrupt(small, "frost", severity, constants=constants, textures=folder)
    for index, image in enumerate(small):
        draws = Draws(0, "frost", severity, [index])
        (down, right), number = draws.uniform(0, 1, (2,))[0], draws.integers(0, 5)[0]
        texture = np.asarray(Image.open(folder / f"frost{number + 1}.png"))
        # Shrinking to a fifth without smoothing reads the middle pixel of each five.
        texture = texture[stride // 2 :: stride, stride // 2 :: stride].astype(float)
        top, left = int(down * (len(texture) - 32)), int(right * (texture.shape[1] - 32))
        piece = texture[top : top + 32, left : left + 32]
        mixed = np.clip(scene_weight * image + frost_weight * piece, 0, 255)
        np.testing.assert_array_equal(result[index], np.uint8(mixed))


def test_frost_uses_the_first_five_textures_evenly(folder):
    black = np.zeros((300, 4, 4, 3), dtype=np.uint8)
    blue = corrupt(black, "frost", 1, constants="imagenet", textures=folder)[:, 0, 0, 2]
    levels, counts = np.unique(blue, return_counts=True)
    np.testing.assert_array_equal(levels, [int(0.4 * 40 * number) for number in range(1, 6)])
    assert counts.min() > 35


def test_textures_smaller_than_the_image_are_enlarged(folder):
    textures = frost_textures(folder, 5, 64, 96)
    assert all(len(texture) > 64 and texture.shape[1] > 96 for texture in textures)


def test_the_folder_above_the_textures_will_do(folder, tmp_path_factory):
    above = tmp_path_factory.mktemp("data")
    folder.rename(above / "frost")
    np.testing.assert_array_equal(read_textures(above), read_textures(above / "frost"))


def test_a_folder_without_enough_textures_is_an_error(tmp_path):
    Image.new("RGB", (50, 50)).save(tmp_path / "frost1.png")
    with pytest.raises(ValueError, match=r"at least 5 PNG or JPEG images; .* holds 1"):
        read_textures(tmp_path)


def test_a_file_that_is_no_image_is_named(folder):
    (folder / "frost2.png").write_text("<html>not found</html>")
    with pytest.raises(ValueError, match=r"frost2\.png' is not"):
        read_textures(folder)


def test_transparency_is_dropped(folder):
    Image.new("RGBA", (60, 60), (10, 20, 30, 0)).save(folder / "frost1.png")
    np.testing.assert_array_equal(read_textures(folder)[0][0, 0], [10, 20, 30])


def test_grown_textures_are_always_the_same():
    first = [texture.copy() for texture in grown_textures()]
    grown_textures.cache_clear()
    for before, after in zip(first, grown_textures(), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("number", range(len(FROSTS)))
def test_grown_textures_have_the_brightness_and_contrast_of_photographs(number):
    # Mean of red, green and blue, and spread of the brightness, of the published photographs.
    mean, spread = (
        ((77.7, 149.1, 165.7), 18.8),
        ((200.8, 205.4, 214.5), 21.9),
        ((200.8, 205.4, 214.5), 21.9),
        ((137.6, 152.8, 165.2), 28.6),
        ((112.4, 123.4, 134.8), 43.5),
    )[number]
    texture = grown_textures()[number].astype(float)
    np.testing.assert_allclose(texture.mean(axis=(0, 1)), mean, atol=3)
    assert (texture @ [0.299, 0.587, 0.114]).std() == pytest.approx(spread, rel=0.15)


def test_frost_with_our_textures_changes_images_as_much_as_with_the_originals(small):
    shared = os.environ.get("FENCHEL_SHARED_DATA")
    if shared is None or not (Path(shared) / "frost").is_dir():
        pytest.skip("FENCHEL_SHARED_DATA does not hold the frost photographs")
    images = small.repeat(40, axis=0)
    for constants in ("cifar", "imagenet"):
        for severity in SEVERITIES:
            ours, theirs = (
                corrupt(images, "frost", severity, constants=constants, textures=folder)
                for folder in (None, Path(shared) / "frost")
            )
            changes = [np.abs(x.astype(float) - images).mean() for x in (ours, theirs)]
            assert changes[0] == pytest.approx(changes[1], rel=0.06)
            assert ours.mean() == pytest.approx(theirs.mean(), abs=4)
            spreads = [x.astype(float).std(axis=(1, 2)).mean() for x in (ours, theirs)]
            assert spreads[0] == pytest.approx(spreads[1], rel=0.08)
