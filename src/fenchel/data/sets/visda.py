"""VisDA-C: rendered training images, photos to validate on; `image_list.txt` holds `path label`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fenchel.data.base import Dataset
from fenchel.data.formats.image_list import read_image_list
from fenchel.data.home import find, locate
from fenchel.data.pictures import Crop, PictureContent, PictureReader
from fenchel.data.registry import DATASETS, DatasetEntry
from fenchel.files import bad_file

CLASSES = (
    "aeroplane",
    "bicycle",
    "bus",
    "car",
    "horse",
    "knife",
    "motorcycle",
    "person",
    "plant",
    "skateboard",
    "train",
    "truck",
)
OPTIONS = {
    "size": "side of the images (default 224)",
    "short_side": "length of the short side before the crop (256)",
}


def _read(split: str, root: Path | None, *, size: int = 224, short_side: int = 256) -> Dataset:
    if not 0 < size <= short_side:
        raise ValueError(f"need 0 < size <= short_side; got {size} and {short_side}.")
    path = locate("visda-c", root, [f"{split}/image_list.txt"])
    files, labels = read_image_list(path)
    if max(labels) >= len(CLASSES):
        raise bad_file(path, f"labels must lie in 0..{len(CLASSES) - 1}", str(max(labels)))
    reader = PictureReader(path.parent, files, Crop(size=size, short_side=short_side))
    return Dataset(
        name="visda-c",
        split=split,
        shape=(size, size, 3),
        labels=np.array(labels, np.int64),
        classes=CLASSES,
        reader=reader,
        content=PictureContent(reader),
        metric="mean-class-accuracy",
        origin="pictures of image_list.txt",
    )


def _is_present(folder: Path) -> bool:
    return find(folder, ["validation/image_list.txt"]) is not None


def _write_example(folder: Path) -> Mapping[str, Any]:
    random = np.random.default_rng(0)
    for split in ("train", "validation", "test"):
        lines = []
        for label in range(6):
            file = f"{CLASSES[label]}/{label}.png"
            target = folder / split / file
            target.parent.mkdir(parents=True)
            pixels = random.integers(0, 256, (40, 50 + label, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(target)
            lines.append(f"{file} {label}\n")
        (folder / split / "image_list.txt").write_text("".join(lines))
    return {"size": 28, "short_side": 32}


DATASETS.add(
    "visda-c",
    DatasetEntry(
        what="VisDA-C: 152,397 renderings, 55,388 photos, 12 classes; mean class accuracy",
        splits=("validation", "train", "test"),
        read=_read,
        is_present=_is_present,
        write_example=_write_example,
        provider="csr.bu.edu",
        by_hand="Unpack train.tar and validation.tar of http://csr.bu.edu/ftp/visda17/clf/ "
        "(no published checksum, so it is not fetched here).",
        options=OPTIONS,
    ),
)
