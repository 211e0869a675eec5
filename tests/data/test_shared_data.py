"""The readers on real data, where FENCHEL_SHARED_DATA names a folder of public layouts.

It is expected to hold svhn, usps, mnist-m, imagenet, bsds and frost, any of which may be absent.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from fenchel.data import corrupted, load
from fenchel.data.orders import spread
from fenchel.data.stream import Stream, corruption_shifts

SHARED = os.environ.get("FENCHEL_SHARED_DATA")
pytestmark = pytest.mark.skipif(not SHARED, reason="FENCHEL_SHARED_DATA is not set")


def folder(name):
    path = Path(SHARED or "") / name
    if not path.exists():
        pytest.skip(f"{path} is absent")
    return path


@pytest.mark.parametrize("split", ["train", "test"])
def test_svhn_has_more_ones_than_any_other_digit(split):
    dataset = load("svhn", split, folder("svhn"))
    counts = np.bincount(dataset.labels)
    assert len(counts) == 10
    assert counts.argmax() == 1
    assert 100 < dataset.images(np.arange(500)).mean() < 130


def test_usps_has_its_published_sizes_and_dark_borders():
    train, test = (load("usps", split, folder("usps")) for split in ("train", "test"))
    assert (len(train), len(test)) == (7291, 2007)
    images = test.images(np.arange(len(test)))
    assert images[:, 0, 0].mean() < 20 < images[:, 8, 8].mean()


def test_mnist_m_has_its_published_size():
    dataset = load("mnist-m", "test", folder("mnist-m"))
    assert len(dataset) == 9001
    assert np.bincount(dataset.labels).min() > 750


def test_imagenet_pictures_come_at_224():
    dataset = load("imagenet", root=folder("imagenet"), cropped=True)
    assert len(np.unique(dataset.labels)) == 1000
    assert dataset.images(spread(dataset.labels, 8)).shape == (8, 224, 224, 3)


def test_a_stream_over_imagenet_corruptions_runs():
    clean = load("imagenet", root=folder("imagenet"), cropped=True)
    shifts = corruption_shifts(clean, corruptions=("contrast", "pixelate"))
    stream = Stream(shifts=shifts, batch_size=4, limit=8)
    assert [tuple(batch.inputs.shape) for batch in stream] == [(4, 3, 224, 224)] * 4


def test_frost_uses_the_original_textures():
    clean = load("mnist-m", root=folder("mnist-m"))
    ours = corrupted(clean, "frost", 5).images([0])
    original = corrupted(clean, "frost", 5, textures=folder("frost")).images([0])
    assert (ours != original).any()
