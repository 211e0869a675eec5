"""ImageNet-C: JPEG files of 224 x 224, never cropped a second time; or the same made as they are read.

The files lie in `<corruption>/<severity>/<wnid>/*.JPEG`. Where there are none, the clean validation images
are corrupted as they are read and go through JPEG of the published quality, so that both are the same pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fenchel.data.base import Dataset, Images, Indices, Reader
from fenchel.data.corruptions import CORRUPTIONS, SEVERITIES
from fenchel.data.home import dataset_folder, find, locate
from fenchel.data.registry import DATASETS, DatasetEntry
from fenchel.data.sets.imagenet import AS_IT_IS, SIZE, read_pictures, write_pictures
from fenchel.data.shifts import (
    CORRUPTED_OPTIONS,
    DerivedContent,
    check_corruption,
    corrupted,
)
from fenchel.fetching.retrieval import GIBIBYTE, RemoteFile, Retrieval
from fenchel.wnids import wnids

NAME, CLEAN, PUBLIC_FOLDER = "imagenet-c", "imagenet", "ImageNet-C"
CONSTANTS = "imagenet"
QUALITY = 85
"""Of the published JPEG files."""

FILES = tuple(
    RemoteFile(
        file=f"{group}.tar",
        md5=md5,
        urls=(f"https://zenodo.org/records/2235448/files/{group}.tar?download=1",),
        unpack=True,
        most_bytes=32 * GIBIBYTE,
    )
    for group, md5 in (
        ("blur", "2d8e81fdd8e07fef67b9334fa635e45c"),
        ("digital", "89157860d7b10d5797849337ca2e5c03"),
        ("extra", "d492dfba5fc162d8ec2c3cd8ee672984"),
        ("noise", "e80562d7f6c3f8834afb1ecf27252745"),
        ("weather", "33ffea4db4d93fe4a428c40a6ce0c25d"),
    )
)


def _read(
    split: str,
    root: Path | None,
    *,
    corruption: str | None = None,
    severity: int = 5,
    source: str = "auto",
    seed: int = 0,
    textures: str | Path | None = None,
) -> Dataset:
    corruption = check_corruption(NAME, corruption, severity, source)
    if source == "files" or (source == "auto" and _is_present(dataset_folder(NAME, root))):
        folder = locate(NAME, root, _places(corruption, severity))
        return read_pictures(NAME, split, folder, AS_IT_IS, "JPEG files of 224 x 224")
    made = corrupted(
        read_clean(root), corruption, severity, constants=CONSTANTS, seed=seed, textures=textures
    )
    return replace(
        made,
        name=NAME,
        split=split,
        reader=CompressingReader(made.reader),
        content=DerivedContent(made.content, f"JPEG of quality {QUALITY}"),
    )


def read_clean(root: Path | None) -> Dataset:
    """The clean validation images, below `root` if they are there, else in the cache."""
    try:
        return DATASETS[CLEAN].read("val", root)
    except FileNotFoundError as missing:
        if root is None:
            raise FileNotFoundError(
                f"{NAME} is made from the clean {CLEAN}. {missing}"
            ) from missing
        return read_clean(None)


@dataclass(frozen=True)
class CompressingReader:
    """Images that went through JPEG of the published quality, as files do."""

    reader: Reader = field(repr=False)

    def __call__(self, indices: Indices) -> Images:
        """uint8 (n, H, W, 3)."""
        images: Images = self.reader(indices)
        for image in images:
            file = BytesIO()
            Image.fromarray(image).save(file, "JPEG", quality=QUALITY)
            image[:] = np.asarray(Image.open(file))
        return images


def _places(corruption: str, severity: int) -> list[str]:
    """Where a corruption lies: bare, below ImageNet-C, or below the name of its archive."""
    tail = f"{corruption}/{severity}"
    archives = [remote.file.removesuffix(".tar") for remote in FILES]
    return [tail, f"{PUBLIC_FOLDER}/{tail}", *(f"{archive}/{tail}" for archive in archives)]


def _is_present(folder: Path) -> bool:
    return any(
        find(place, _places(corruption, severity))
        for place in (folder, folder / NAME)
        for corruption in CORRUPTIONS
        for severity in SEVERITIES
    )


def _write_example(folder: Path) -> Mapping[str, Any]:
    write_pictures(folder / "fog" / "3", (wnids()[3], wnids()[500]), SIZE, SIZE)
    return {"corruption": "fog", "severity": 3}


DATASETS.add(
    NAME,
    DatasetEntry(
        what="ImageNet-C: 19 corruptions x 5 severities of ImageNet, 224 x 224",
        splits=("test",),
        read=_read,
        is_present=_is_present,
        write_example=_write_example,
        recipe=Retrieval(source="zenodo.org record 2235448", files=FILES),
        by_hand=f"Or make it from {CLEAN}: 'fenchel data make {NAME}'; {NAME}:on-the-fly needs no files.",
        options=CORRUPTED_OPTIONS,
        clean=CLEAN,
    ),
)
