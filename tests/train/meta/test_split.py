"""An objective is never scored on images that it was learned on."""

import numpy as np
import pytest

from fenchel.data import from_arrays
from fenchel.data.stream import corruption_shifts, shift_to
from fenchel.train.meta import Split, split_rows
from fenchel.train.meta.split import common_length, part_of


@pytest.fixture
def images():
    pixels = np.arange(12 * 64).reshape(12, 8, 8, 1).astype(np.uint8)
    return from_arrays("grid", pixels, np.arange(12) % 3)


def test_the_default_is_two_halves_of_a_shuffle():
    split = split_rows(1001)
    assert (len(split.learn), len(split.score)) == (500, 501)
    assert np.array_equal(np.sort(np.concatenate([split.learn, split.score])), np.arange(1001))
    assert split.learn.max() > 900  # sorted data sets are cut across their classes
    assert np.array_equal(split_rows(1001).learn, split.learn)


def test_one_range_leaves_all_other_images_to_the_other_part():
    split = split_rows(10, score="7:")
    assert split.learn.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert split.score.tolist() == [7, 8, 9]


def test_the_limit_holds_for_each_part():
    split = split_rows(100, limit=7)
    assert (len(split.learn), len(split.score)) == (7, 7)
    assert not np.intersect1d(split.learn, split.score).size


def test_overlapping_parts_are_refused():
    with pytest.raises(ValueError, match=r"2 images are in both \(4\.\.5\)"):
        split_rows(10, learn="0:6", score="4:10")
    with pytest.raises(ValueError, match="images to score on; got none"):
        Split(np.arange(3), np.arange(0))


@pytest.mark.parametrize("text", ["5", "3:3", "-1:4", "0:11", "a:b", "8:2"])
def test_ranges_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match=r"START:STOP with 0 <= START < STOP <= 10; got"):
        split_rows(10, learn=text)


def test_a_part_reads_its_rows_as_the_whole_does(images):
    (shift,) = corruption_shifts(images, corruptions=["speckle_noise"], severities=[5])
    rows = np.array([1, 4, 9])
    part = part_of(shift, rows).dataset
    assert np.array_equal(part.read([0, 2]), shift.dataset.read([1, 9]))
    assert part.labels.tolist() == [1, 1, 0]
    assert part.digest != shift.dataset.digest
    assert part.digest != part_of(shift, np.array([1, 4, 8])).dataset.digest


def test_images_other_than_those_recorded_are_refused():
    recorded = split_rows(100).record()
    split_rows(100).check(recorded)
    for other in (split_rows(100, learn="0:50"), split_rows(100, limit=10)):
        with pytest.raises(ValueError, match="learned on must be known"):
            other.check(recorded)


def test_data_sets_of_several_lengths_cannot_be_split_alike(images):
    longer = from_arrays("more", np.zeros((13, 8, 8, 1), np.uint8), np.arange(13) % 3)
    assert common_length([images, images]) == 12
    with pytest.raises(ValueError, match="12, 13 images"):
        common_length([shift_to(images).dataset, longer])
