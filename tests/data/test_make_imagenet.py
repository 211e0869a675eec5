"""Making ImageNet-C: files in the public layout, the same pixels without files, whatever the workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fenchel.data import load
from fenchel.data.corruptions import corrupt
from fenchel.data.fetching.verify import verify
from fenchel.data.make import make
from fenchel.data.making import imagenet as making
from fenchel.data.shifts import CorruptingReader
from fenchel.wnids import wnids

CLASSES = (wnids()[3], wnids()[500], wnids()[999])
EVERY = np.arange(6)


@pytest.fixture
def clean(cache: Path) -> Path:
    """Two crops of three classes, smooth enough for JPEG to keep them."""
    folder = cache / "data" / "imagenet"
    across = np.linspace(0, 255, 224)
    for place, wnid in enumerate(CLASSES):
        (folder / "val" / wnid).mkdir(parents=True)
        for number in range(2):
            pixels = np.empty((224, 224, 3), np.uint8)
            pixels[...] = (
                across[:, None] + (40 + place) * number * across[:, None, None] / 99
            ) % 256
            name = f"ILSVRC2012_val_{place}{number}.JPEG"
            Image.fromarray(pixels).save(folder / "val" / wnid / name, quality=95)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_public_layout_is_written_at_224_pixels(clean: Path) -> None:
    folder = make("imagenet-c", corruptions=["contrast"], severities=[2, 5], workers=1)
    assert folder.name == "ImageNet-C"
    names = [
        f"{wnid}/ILSVRC2012_val_{k}{n}.JPEG" for k, wnid in enumerate(CLASSES) for n in range(2)
    ]
    for severity in (2, 5):
        found = contents(folder / "contrast" / str(severity))
        assert sorted(found) == sorted([*names, "made-by-fenchel.json"])
    assert {finding.status for finding in verify(folder)} == {"readable"}
    images = load("imagenet").images(EVERY)
    made = load("imagenet-c", corruption="contrast", severity=5).images(EVERY)
    wanted = corrupt(images, "contrast", 5, constants="imagenet")
    assert np.abs(made.astype(int) - wanted).mean() < 2  # but for JPEG of quality 85


@pytest.mark.parametrize("corruption", ["gaussian_noise", "glass_blur"])
def test_files_and_images_made_on_the_fly_are_the_same_pixels(clean: Path, corruption: str) -> None:
    options: dict[str, Any] = {"corruption": corruption, "severity": 3}
    flown = load("imagenet-c:on-the-fly", **options)
    pixels = flown.images(EVERY)
    assert "generated from imagenet val" in flown.origin
    make("imagenet-c", corruptions=[corruption], severities=[3], workers=1)
    made = load("imagenet-c", **options)
    assert made.origin == "JPEG files of 224 x 224"
    np.testing.assert_array_equal(made.images(EVERY), pixels)
    np.testing.assert_array_equal(made.labels, flown.labels)
    np.testing.assert_array_equal(flown.images([4, 1]), pixels[[4, 1]])


def test_without_files_imagenet_c_is_made_as_it_is_read(clean: Path) -> None:
    options: dict[str, Any] = {"corruption": "fog", "severity": 1}
    assert load("imagenet-c", **options).digest == load("imagenet-c:on-the-fly", **options).digest
    assert load("imagenet-c", **options).digest != load("imagenet-c", **options, seed=1).digest
    make("imagenet-c", corruptions=["contrast"], severities=[5], workers=1)
    with pytest.raises(FileNotFoundError, match="fog/1"):
        load("imagenet-c", **options)  # of files and none, nobody should get a mixture


def test_bytes_do_not_depend_on_the_batch_size(clean: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"corruptions": ["shot_noise", "elastic_transform"]}
    options |= {"severities": [5], "workers": 1}  # two of them: tests/data/test_make.py
    one = make("imagenet-c", out=tmp_path / "one", batch_size=6, **options)
    two = make("imagenet-c", out=tmp_path / "two", batch_size=1, **options)
    assert contents(one) == contents(two)


def test_some_images_are_some_of_every_class_with_the_same_noise(
    clean: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"corruptions": ["gaussian_noise"], "severities": [5], "workers": 1}
    some = contents(make("imagenet-c", out=tmp_path / "some", images=3, **options))
    whole = contents(make("imagenet-c", out=tmp_path / "whole", **options))
    pictures = {name: content for name, content in some.items() if name.endswith("JPEG")}
    assert [name.split("/")[2] for name in pictures] == list(CLASSES)
    assert pictures.items() < whole.items()
    with pytest.raises(ValueError, match="no more than there are; got 7"):
        make("imagenet-c", out=tmp_path / "more", images=7, **options)


def test_an_interruption_is_continued_with_the_pictures_that_are_there(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = CorruptingReader.__call__
    calls: list[list[int]] = []

    def interrupted(self: CorruptingReader, indices: Any) -> Any:
        calls.append(indices.tolist())
        if len(calls) == 3:
            raise KeyboardInterrupt
        return read(self, indices)

    options: dict[str, Any] = {"corruptions": ["fog"], "severities": [5], "workers": 1}
    options |= {"out": tmp_path, "batch_size": 2}
    monkeypatch.setattr(CorruptingReader, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make("imagenet-c", **options)
    assert not (tmp_path / "ImageNet-C" / "fog" / "5").exists()
    calls += [[], [], []]  # no further interruption
    folder = make("imagenet-c", **options)
    assert calls[-3:] == [[], [], [4, 5]]
    monkeypatch.undo()
    monkeypatch.setenv("FENCHEL_HOME", str(clean.parents[1]))
    whole = make("imagenet-c", **{**options, "out": tmp_path / "whole"})
    assert contents(folder) == contents(whole)


def test_what_was_made_is_made_again_only_where_it_differs(clean: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"corruptions": ["contrast"], "severities": [5], "workers": 1}
    folder = make("imagenet-c", out=tmp_path, **options)
    first = contents(folder)
    picture = folder / "contrast" / "5" / CLASSES[0] / "ILSVRC2012_val_00.JPEG"
    before = picture.stat().st_mtime_ns
    make("imagenet-c", out=tmp_path, **options)
    assert picture.stat().st_mtime_ns == before
    picture.write_bytes(b"damaged")
    make("imagenet-c", out=tmp_path, **options)
    assert contents(folder) == first


def test_disk_use_is_told_before_anything_is_written(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    options: dict[str, Any] = {"corruptions": ["contrast"], "severities": [5], "workers": 1}
    make("imagenet-c", out=tmp_path / "one", say=said.append, **options)
    (line,) = said
    assert line.startswith("6 pictures of 224 x 224 take about 0.0 GB")
    monkeypatch.setattr(making, "BYTES_PER_PICTURE", 10**15)
    with pytest.raises(OSError, match="imagenet-c:on-the-fly, which needs no disk"):
        make("imagenet-c", out=tmp_path / "two", **options)
    assert not (tmp_path / "two").exists()


def test_published_pictures_are_not_overwritten(clean: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "ImageNet-C" / "fog" / "5" / CLASSES[0]
    theirs.mkdir(parents=True)
    (theirs / "a.JPEG").write_bytes(b"theirs")
    with pytest.raises(ValueError, match="was not made here"):
        make("imagenet-c", out=tmp_path, corruptions=["fog"], severities=[5], workers=1)
    assert (theirs / "a.JPEG").read_bytes() == b"theirs"


def test_only_imagenet_is_made_in_part(clean: Path) -> None:
    with pytest.raises(ValueError, match="cifar10-c is made whole"):
        make("cifar10-c", images=10)
