"""MNIST-M: digits blended into photos; the public PNG folder, or made from MNIST and BSDS500.

Making it: a digit, padded to 32 x 32, is subtracted from a random patch of a random photo, and
the absolute value is kept. The patch depends on (seed, split, image) alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fenchel.data.base import Dataset, Images, Indices, Reader
from fenchel.data.formats.image_list import read_image_list
from fenchel.data.home import dataset_folder, find
from fenchel.data.pictures import (
    EXTENSIONS,
    Crop,
    PictureContent,
    PictureReader,
    read_picture,
)
from fenchel.data.registry import DATASETS, DatasetEntry
from fenchel.data.shifts import AS_DIGITS_OPTION, DerivedContent, as_digits
from fenchel.fetching.retrieval import RemoteFile, Retrieval
from fenchel.files import bad_file

SIDE = 32
DIGITS = tuple(str(k) for k in range(10))
OPTIONS = {
    "photos": "folder of BSDS500 photos: makes the images from MNIST instead of reading PNG files",
    "seed": "seed of the patches, when made (default 0)",
    "mnist": "folder of MNIST, when made (default: the cache)",
    **AS_DIGITS_OPTION,
}


def _read(
    split: str,
    root: Path | None,
    *,
    photos: str | Path | None = None,
    seed: int = 0,
    mnist: str | Path | None = None,
    digits: bool = False,
) -> Dataset:
    if photos is not None:
        dataset = synthesise(split, Path(photos), seed=seed, mnist=mnist)
    else:
        dataset = _from_pictures(split, root)
    return as_digits(dataset) if digits else dataset


def _from_pictures(split: str, root: Path | None) -> Dataset:
    folder = dataset_folder("mnist-m", root)
    list_file = f"mnist_m_{split}_labels.txt"
    path = find(folder, [f"mnist_m/{list_file}", list_file])
    if path is None:
        raise FileNotFoundError(
            f"mnist-m needs mnist_m/{list_file} in {folder}; there is none. Run 'fenchel data "
            "fetch mnist-m', or pass photos= to make it from MNIST and BSDS500."
        )
    files, labels = read_image_list(path)
    reader = PictureReader(path.parent / f"mnist_m_{split}", files, Crop(size=SIDE))
    return Dataset(
        name="mnist-m",
        split=split,
        shape=(SIDE, SIDE, 3),
        labels=np.array(labels, np.int64),
        classes=DIGITS,
        reader=reader,
        content=PictureContent(reader),
        origin="PNG files",
    )


@lru_cache(maxsize=256)  # BSDS500 has 200 training photos of half a megabyte
def _photo(path: Path) -> Images:
    return read_picture(path, Crop())


@dataclass(frozen=True)
class BlendingReader:
    """Digits blended into photos as they are read."""

    digits: Reader = field(repr=False)
    photos: tuple[Path, ...] = field(repr=False)
    split: str
    seed: int

    def __call__(self, indices: Indices) -> Images:
        """uint8 (n, 32, 32, 3): |patch - digit|."""
        digits = np.pad(self.digits(indices), ((0, 0), (2, 2), (2, 2), (0, 0)))
        patches = [self._patch(int(index)) for index in indices]
        stacked = np.array(patches, np.int16).reshape(-1, SIDE, SIDE, 3)
        blended: Images = np.abs(stacked - digits).astype(np.uint8)
        return blended

    def _patch(self, index: int) -> Images:
        stream = (self.seed, 0 if self.split == "train" else 1, index)
        random = np.random.default_rng(np.random.SeedSequence(stream))
        photo = _photo(self.photos[random.integers(len(self.photos))])
        top, left = (int(random.integers(length - SIDE + 1)) for length in photo.shape[:2])
        return photo[top : top + SIDE, left : left + SIDE]


def synthesise(
    split: str, photos: Path, *, seed: int = 0, mnist: str | Path | None = None
) -> Dataset:
    """MNIST-M made from MNIST and the photos of a folder (BSDS500's images/train, say)."""
    files = sorted(path for path in photos.rglob("*") if path.suffix.lower() in EXTENSIONS)
    if not files:
        raise FileNotFoundError(f"{photos} must hold photos (.jpg, .png); there are none.")
    for path in files:
        with Image.open(path) as photo:
            if min(photo.size) < SIDE:
                raise bad_file(path, f"photos must be at least {SIDE} pixels wide", str(photo.size))
    base = DATASETS["mnist"].read(split, None if mnist is None else Path(mnist))
    names = " ".join(f"{path.name}:{path.stat().st_size}" for path in files)
    return Dataset(
        name="mnist-m",
        split=split,
        shape=(SIDE, SIDE, 3),
        labels=base.labels,
        classes=DIGITS,
        reader=BlendingReader(base.reader, tuple(files), split, seed),
        content=DerivedContent(base.content, f"mnist-m {split} {seed} {names}"),
        origin=f"made from MNIST and {len(files)} photos with seed {seed}",
    )


def _is_present(folder: Path) -> bool:
    return find(folder, ["mnist_m/mnist_m_test_labels.txt", "mnist_m_test_labels.txt"]) is not None


def _write_example(folder: Path) -> Mapping[str, Any]:
    random = np.random.default_rng(0)
    for split in ("train", "test"):
        target = folder / "mnist_m" / f"mnist_m_{split}"
        target.mkdir(parents=True)
        for k in range(6):
            pixels = random.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(target / f"{k:08d}.png")
        lines = "".join(f"{k:08d}.png {k}\n" for k in range(6))
        (folder / "mnist_m" / f"mnist_m_{split}_labels.txt").write_text(lines)
    return {}


DATASETS.add(
    "mnist-m",
    DatasetEntry(
        what="MNIST-M: 59,001 + 9,001 digits blended into photos, 32 x 32",
        splits=("test", "train"),
        read=_read,
        is_present=_is_present,
        write_example=_write_example,
        recipe=Retrieval(
            source="cornell.box.com",
            files=(
                RemoteFile(
                    file="mnist_m.tar.gz",
                    md5="859df31c91afe82e80e5012ba928f279",
                    urls=(
                        "https://cornell.box.com/shared/static/jado7quprg6hzzdubvwzh9umr75damwi",
                    ),
                    unpack=True,
                ),
            ),
        ),
        by_hand="Or make it from MNIST and the BSDS500 photos: mnist-m:photos=FOLDER.",
        options=OPTIONS,
    ),
)
