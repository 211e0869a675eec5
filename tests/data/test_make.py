"""Making CIFAR-10-C: bytes that depend on nothing but what they should."""

import hashlib

import numpy as np
import pytest

from fenchel.data import DATASETS, load
from fenchel.data.corruptions import corrupt
from fenchel.data.fetching.verify import verify
from fenchel.data.make import make
from fenchel.data.manifest import read_manifest
from fenchel.data.shifts import CorruptingReader

NOISY = ["gaussian_noise", "brightness"]


@pytest.fixture
def root(tmp_path, cache):
    folder = tmp_path / "clean"
    folder.mkdir()
    DATASETS["cifar10"].write_example(folder)
    return folder


def digests(folder):
    return {p.name: hashlib.md5(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def test_the_public_layout_is_written(root, tmp_path):
    folder = make("cifar10-c", root=root, out=tmp_path / "out", corruptions=NOISY, workers=1)
    assert folder == tmp_path / "out" / "CIFAR-10-C"
    clean = load("cifar10", root=root)
    images = clean.images(np.arange(6))
    for name in NOISY:
        rows = np.load(folder / f"{name}.npy")
        assert rows.shape == (30, 32, 32, 3)
        assert rows.dtype == np.uint8
        for severity in range(1, 6):
            part = rows[(severity - 1) * 6 : severity * 6]
            np.testing.assert_array_equal(part, corrupt(images, name, severity))
    np.testing.assert_array_equal(np.load(folder / "labels.npy"), np.tile(clean.labels, 5))
    assert {finding.status for finding in verify(folder)} == {"made here", "readable"}


def test_bytes_do_not_depend_on_workers_or_batch_size(root, tmp_path):
    options = {"root": root, "corruptions": [*NOISY, "glass_blur"], "severities": [2, 5]}
    one = make("cifar10-c", out=tmp_path / "one", workers=1, batch_size=6, **options)
    two = make("cifar10-c", out=tmp_path / "two", workers=2, batch_size=1, **options)
    odd = make("cifar10-c", out=tmp_path / "odd", workers=1, batch_size=4, **options)
    assert digests(one) == digests(two) == digests(odd)


def test_made_and_generated_images_are_the_same(root, tmp_path):
    make(
        "cifar10-c", root=root, out=tmp_path / "out", corruptions=["fog"], severities=[5], workers=1
    )
    options = {"corruption": "fog", "severity": 5}
    made = load("cifar10-c", root=tmp_path / "out", **options)
    generated = load("cifar10-c", root=root, source="generated", **options)
    np.testing.assert_array_equal(made.images(np.arange(6)), generated.images(np.arange(6)))


def test_severities_not_made_keep_their_rows_and_are_not_read(root, tmp_path):
    folder = make(
        "cifar10-c", root=root, out=tmp_path, corruptions=["fog"], severities=[5], workers=1
    )
    rows = np.load(folder / "fog.npy")
    assert rows.shape == (30, 32, 32, 3)
    assert not rows[:24].any()
    assert rows[24:].any()
    with pytest.raises(FileNotFoundError, match="severities 5 alone, not 3"):
        load("cifar10-c", root=tmp_path, corruption="fog", severity=3)


def test_more_severities_are_added_to_those_there(root, tmp_path):
    options = {"root": root, "out": tmp_path / "steps", "corruptions": ["fog"], "workers": 1}
    make("cifar10-c", severities=[5], **options)
    folder = make("cifar10-c", severities=[1, 2, 3, 4], **options)
    assert read_manifest(folder)["fog"].severities == (1, 2, 3, 4, 5)
    whole = make("cifar10-c", root=root, out=tmp_path / "whole", corruptions=["fog"], workers=1)
    assert digests(folder) == digests(whole)


def test_what_was_made_is_not_made_again(root, tmp_path, monkeypatch):
    options = {"root": root, "out": tmp_path, "corruptions": ["fog"], "workers": 1}
    folder = make("cifar10-c", **options)
    before = (folder / "fog.npy").stat().st_mtime_ns
    make("cifar10-c", **options)
    assert (folder / "fog.npy").stat().st_mtime_ns == before
    make("cifar10-c", seed=1, **options)
    assert read_manifest(folder)["fog"].seed == 1


def test_a_damaged_file_is_made_again(root, tmp_path):
    options = {"root": root, "out": tmp_path, "corruptions": ["fog"], "workers": 1}
    folder = make("cifar10-c", **options)
    whole = digests(folder)
    content = bytearray((folder / "fog.npy").read_bytes())
    content[-1] ^= 1
    (folder / "fog.npy").write_bytes(content)
    assert "bad" in {finding.status for finding in verify(folder)}
    make("cifar10-c", **options)
    assert digests(folder) == whole


def test_an_interruption_leaves_whole_files_only_and_is_continued(root, tmp_path, monkeypatch):
    original = CorruptingReader.__call__

    def interrupted(self, indices):
        if self.corruption == "fog":
            raise KeyboardInterrupt
        return original(self, indices)

    options = {"root": root, "out": tmp_path, "corruptions": ["contrast", "fog"], "workers": 1}
    with monkeypatch.context() as patch:
        patch.setattr(CorruptingReader, "__call__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            make("cifar10-c", **options)
    folder = tmp_path / "CIFAR-10-C"
    names = ["contrast.npy", "labels.npy", "made-by-fenchel.json"]
    assert sorted(digests(folder)) == names
    kept = (folder / "contrast.npy").stat().st_mtime_ns
    make("cifar10-c", **options)
    assert sorted(digests(folder)) == sorted([*names, "fog.npy"])
    assert (folder / "contrast.npy").stat().st_mtime_ns == kept


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("cifar-10-c", {}, "Did you mean 'cifar10-c'"),
        ("cifar10-c", {"corruptions": ["smog"]}, "unknown corruption"),
        ("cifar10-c", {"severities": [0]}, "among 1 to 5"),
        ("cifar10-c", {"workers": 0}, "at least 1"),
        ("cifar10-c", {"batch_size": 0}, "at least 1"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(root, tmp_path, name, options, words):
    with pytest.raises(ValueError, match=words):
        make(name, root=root, out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_published_files_are_not_overwritten(root, tmp_path):
    DATASETS["cifar10-c"].write_example(tmp_path)
    before = digests(tmp_path / "CIFAR-10-C")
    with pytest.raises(ValueError, match=r"fog\.npy was not made here"):
        make("cifar10-c", root=root, out=tmp_path, workers=1)
    assert digests(tmp_path / "CIFAR-10-C") == before


def test_without_the_clean_set_it_says_so(cache, tmp_path):
    with pytest.raises(FileNotFoundError, match="made from the clean cifar10"):
        make("cifar10-c", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
