"""Data sets made of others: corrupted, or in the form of digits; and contact sheets of them."""

import numpy as np
import pytest
from PIL import Image

from fenchel.data import as_digits, corrupted, from_arrays, load, sheet
from fenchel.data.corruptions import CORRUPTIONS, corrupt
from fenchel.data.shifts import constants_for

RANDOM = np.random.default_rng(0)
CLEAN = from_arrays(
    "tiny", RANDOM.integers(0, 256, (9, 32, 32, 3), dtype=np.uint8), np.arange(9) % 3
)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_any_batch_equals_the_rows_of_the_whole(name):
    whole = corrupt(CLEAN.images(np.arange(9)), name, 3, seed=1)
    shifted = corrupted(CLEAN, name, 3, seed=1)
    for batch in ([8, 0, 4], [2], [3, 3]):
        np.testing.assert_array_equal(shifted.images(batch), whole[batch])


def test_the_clean_data_set_stays_as_it_is():
    before = CLEAN.images(np.arange(9))
    corrupted(CLEAN, "contrast", 5).images(np.arange(9))
    np.testing.assert_array_equal(CLEAN.images(np.arange(9)), before)
    assert corrupted(CLEAN, "fog", 0) is CLEAN


def test_constants_follow_the_size_of_the_images():
    assert constants_for((32, 32, 3)) == "cifar"
    assert constants_for((224, 224, 3)) == "imagenet"
    assert "cifar constants" in corrupted(CLEAN, "fog", 1).origin
    assert "imagenet constants" in corrupted(CLEAN, "fog", 1, constants="imagenet").origin


def test_frost_textures_are_part_of_the_digest(tmp_path):
    for k in range(6):
        suffix = "png" if k < 3 else "jpg"
        pixels = RANDOM.integers(0, 256, (400, 400, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"frost{k + 1}.{suffix}")
    procedural = corrupted(CLEAN, "frost", 5)
    textured = corrupted(CLEAN, "frost", 5, textures=tmp_path)
    assert procedural.digest != textured.digest
    assert (procedural.images([0]) != textured.images([0])).any()


@pytest.mark.parametrize("severity", [-1, 6, 2.5, True])
def test_wrong_severities_are_refused(severity):
    with pytest.raises(ValueError, match="severity must be"):
        corrupted(CLEAN, "fog", severity)


def test_wrong_names_and_vectors_are_refused():
    with pytest.raises(ValueError, match="Did you mean 'snow'"):
        corrupted(CLEAN, "snows", 1)
    with pytest.raises(ValueError, match="constants"):
        corrupted(CLEAN, "fog", 1, constants="cfiar")
    with pytest.raises(TypeError, match="images"):
        corrupted(load("gaussians", samples=4), "fog", 1)
    with pytest.raises(TypeError, match="images"):
        as_digits(load("gaussians", samples=4))


def test_digits_keep_their_centre_or_grow():
    cut = as_digits(CLEAN)
    np.testing.assert_array_equal(cut.images([1]), CLEAN.images([1])[:, 2:30, 2:30])
    grey = from_arrays("grey", RANDOM.integers(0, 256, (2, 16, 16), dtype=np.uint8), np.arange(2))
    grown = as_digits(grey).images([0, 1])
    assert grown.shape == (2, 28, 28, 3)
    assert (grown[..., 0] == grown[..., 2]).all()
    assert abs(grown.mean() - grey.images([0, 1]).mean()) < 3
    assert as_digits(cut) is cut


# contact sheets


def shifted(corruption, severity):
    return corrupted(CLEAN, corruption, severity)


def test_a_sheet_shows_every_corruption_by_default():
    rows = sheet.corruption_rows(shifted, CLEAN)
    assert [row.label for row in rows] == ["clean", *(c.replace("_", " ") for c in CORRUPTIONS)]
    picture = sheet.draw(rows, "tiny", "every corruption")
    assert picture.width > picture.height


def test_one_corruption_shows_its_severities():
    rows = sheet.corruption_rows(shifted, CLEAN, corruptions=["fog"], count=2)
    assert [row.label for row in rows] == ["clean", *(f"severity {k}" for k in range(1, 6))]
    several = sheet.corruption_rows(shifted, corruptions=["fog", "snow"], severities=[1, 5])
    assert [row.label for row in several] == ["fog 1", "fog 5", "snow 1", "snow 5"]


def test_the_tiles_are_the_images():
    rows = [sheet.Row("clean", CLEAN.images([0, 1]))]
    pixels = np.asarray(sheet.draw(rows, "tiny"))
    enlarged = np.kron(CLEAN.images([1])[0], np.ones((3, 3, 1), np.uint8))
    tops = range(pixels.shape[0] - 95)
    right = pixels.shape[1] - sheet.MARGIN - sheet.GAP
    assert any((pixels[top : top + 96, right - 96 : right] == enlarged).all() for top in tops)


def test_images_of_a_sheet_cover_the_classes():
    labels = np.repeat(np.arange(5), 4)
    assert labels[sheet.spread(labels, 5)].tolist() == [0, 1, 2, 3, 4]
    assert labels[sheet.spread(labels, 3)].tolist() == [0, 2, 4]
    assert len(set(sheet.spread(labels, 12))) == 12


def test_a_sheet_of_classes_has_a_row_each():
    rows = sheet.class_rows(CLEAN, count=2)
    assert [row.label for row in rows] == ["0", "1", "2"]
    np.testing.assert_array_equal(rows[1].images, CLEAN.images([1, 4]))


def test_an_unknown_picture_format_leaves_nothing(tmp_path):
    picture = sheet.draw(sheet.class_rows(CLEAN), "tiny")
    with pytest.raises(ValueError, match=r"must be a \.png"):
        sheet.save(picture, tmp_path / "grid.xyz")
    assert list(tmp_path.iterdir()) == []
    sheet.save(picture, tmp_path / "deep" / "grid.png")
    with Image.open(tmp_path / "deep" / "grid.png") as saved:
        assert saved.size == picture.size
