"""Any folder of images by class: `<root>/<split>/<class>/*`, or `<root>/<class>/*` for all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fenchel.data.base import Dataset
from fenchel.data.pictures import Crop, PictureContent, PictureReader, pictures_by_class
from fenchel.data.registry import DATASETS, DatasetEntry
from fenchel.files import bad_file

SPLITS = ("test", "train", "val")
OPTIONS = {
    "size": "side of the square images: resize the short side and cut the centre",
    "short_side": "what the short side is resized to (default size * 8 / 7, as 256 for 224)",
}


def _read(
    split: str, root: Path | None, *, size: int | None = None, short_side: int | None = None
) -> Dataset:
    if root is None:
        raise ValueError("the data set 'folder' needs root, the folder with one folder per class.")
    if not root.is_dir():
        raise FileNotFoundError(
            f"{root} must be a folder with one folder per class; there is none."
        )
    top = _top(root, split)
    classes = sorted(path.name for path in top.iterdir() if path.is_dir() and path.name[0] != ".")
    files, labels = pictures_by_class(top, classes)
    if not files:
        rule = "must hold folders of pictures, one per class"
        raise bad_file(top, rule, f"{len(classes)} folders and no picture", "Check the path.")
    reader = PictureReader(top, files, _fit(size, short_side))
    return Dataset(
        name="folder",
        split=split,
        shape=reader.shape(),
        labels=np.array(labels, np.int64),
        classes=tuple(classes),
        reader=reader,
        content=PictureContent(reader),
        origin=f"pictures of {top.name}",
    )


def _top(root: Path, split: str) -> Path:
    """The folder of the split; a folder without splits serves as every split."""
    if not any((root / name).is_dir() for name in SPLITS):
        return root
    if not (root / split).is_dir():
        there = [name for name in SPLITS if (root / name).is_dir()]
        raise FileNotFoundError(f"{root} has the splits {', '.join(there)}, not {split}.")
    return root / split


def _fit(size: int | None, short_side: int | None) -> Crop:
    if size is None:
        return Crop()
    short_side = round(size * 8 / 7) if short_side is None else short_side
    if not 0 < size <= short_side:
        raise ValueError(f"need 0 < size <= short_side; got {size} and {short_side}.")
    return Crop(size=size, short_side=short_side)


def _write_example(folder: Path) -> Mapping[str, Any]:
    random = np.random.default_rng(0)
    for split in SPLITS:
        for name in ("cat", "dog"):
            target = folder / split / name
            target.mkdir(parents=True)
            for k in range(3):
                pixels = random.integers(0, 256, (20 + k, 24, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(target / f"{k}.png")
    return {"size": 16}


DATASETS.add(
    "folder",
    DatasetEntry(
        what="any folder of images, one folder per class",
        splits=SPLITS,
        read=_read,
        is_present=lambda folder: folder.is_dir(),
        write_example=_write_example,
        provider="your own",
        by_hand="Pass your folder as root.",
        options=OPTIONS,
    ),
)
