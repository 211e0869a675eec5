"""ImageNet and ImageNet-R: folders of JPEG files named by WordNet id (wnid).

Labels are positions in the sorted list of the 1,000 wnids, whatever subset a folder holds. Both are
resized to 256 on the short side and cut to 224; -R has 200 of the classes, told by `class_mask`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fenchel.data.base import Dataset
from fenchel.data.home import dataset_folder, find, locate
from fenchel.data.pictures import Crop, PictureContent, PictureReader, pictures_by_class
from fenchel.data.registry import DATASETS, DatasetEntry
from fenchel.fetching.retrieval import RemoteFile, Retrieval
from fenchel.files import bad_file
from fenchel.wnids import wnids

SIZE = 224
CROP = Crop(size=SIZE, short_side=256)
AS_IT_IS = Crop(size=SIZE)
LOOKED_AT = 32
"""Files whose sizes tell whether a folder holds crops: in the public one hardly a picture is 224 x 224."""


def read_pictures(name: str, split: str, folder: Path, fit: Crop | None, origin: str) -> Dataset:
    """The data set in `folder`, which has one folder per wnid; without `fit` the files tell it."""
    files, labels = pictures_by_class(folder, wnids())
    if not files:
        rule = "must hold folders named by wnid (n01440764, ...) with pictures"
        raise bad_file(folder, rule, "none", "Sort the pictures into one folder per wnid.")
    fit = _told_by(folder, files) if fit is None else fit
    reader = PictureReader(folder, files, fit)
    return Dataset(
        name=name,
        split=split,
        shape=(SIZE, SIZE, 3),
        labels=np.array(labels, np.int64),
        classes=wnids(),
        reader=reader,
        content=PictureContent(reader),
        origin=origin,
    )


def _read_imagenet(split: str, root: Path | None, *, cropped: bool | None = None) -> Dataset:
    folder = _folder_of_wnids("imagenet", root, [split, f"imagenet/{split}"])
    fit = {True: AS_IT_IS, False: CROP, None: None}[cropped]
    return read_pictures("imagenet", split, folder, fit, "JPEG files")


def _told_by(folder: Path, files: Sequence[str]) -> Crop:
    """How to fit pictures: those that are 224 x 224 without exception are crops already."""
    sizes = set()
    for name in files[:: -(-len(files) // LOOKED_AT)]:
        try:
            with Image.open(folder / name) as picture:
                sizes.add(picture.size)
        except OSError:
            return CROP  # whoever reads it will tell
    return AS_IT_IS if sizes == {(SIZE, SIZE)} else CROP


def _read_imagenet_r(split: str, root: Path | None) -> Dataset:
    folder = _folder_of_wnids("imagenet-r", root, ["imagenet-r"])
    dataset = read_pictures("imagenet-r", split, folder, CROP, "JPEG files")
    mask = np.zeros(len(wnids()), bool)
    mask[dataset.labels] = True
    return replace(dataset, class_mask=mask)


def _folder_of_wnids(name: str, root: Path | None, candidates: list[str]) -> Path:
    """One of the candidates, or `root` itself if the wnids lie there."""
    folder = dataset_folder(name, root)
    if folder.is_dir() and any(path.name in wnids() for path in folder.iterdir()):
        return folder
    return locate(name, root, candidates)


def write_pictures(folder: Path, chosen: Sequence[str], height: int, width: int) -> None:
    """Two random pictures for each of the wnids, as an example of the layout."""
    random = np.random.default_rng(0)
    for wnid in chosen:
        (folder / wnid).mkdir(parents=True, exist_ok=True)
        for k in range(2):
            pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / wnid / f"{wnid}_{k}.JPEG")


def _example(folder: Path) -> Mapping[str, Any]:
    for split in ("val", "train"):
        write_pictures(folder / split, (wnids()[0], wnids()[7], wnids()[999]), 230, 300)
    return {}


def _example_r(folder: Path) -> Mapping[str, Any]:
    write_pictures(folder / "imagenet-r", (wnids()[1], wnids()[2], wnids()[9]), 300, 240)
    return {}


DATASETS.add(
    "imagenet",
    DatasetEntry(
        what="ImageNet: 1,000 classes, folders by wnid, read at 224 x 224",
        splits=("val", "train"),
        read=_read_imagenet,
        is_present=lambda folder: find(folder, ["val", "imagenet/val"]) is not None,
        write_example=_example,
        provider="image-net.org",
        by_hand="Needs an account at image-net.org: put val/<wnid>/*.JPEG into the folder.",
        options={
            "cropped": "whether the files are 224 x 224 centre crops already (default: as they look)"
        },
    ),
)
DATASETS.add(
    "imagenet-r",
    DatasetEntry(
        what="ImageNet-R: 30,000 renditions of 200 of ImageNet's classes",
        splits=("test",),
        read=_read_imagenet_r,
        is_present=lambda folder: find(folder, ["imagenet-r"]) is not None,
        write_example=_example_r,
        recipe=Retrieval(
            source="people.eecs.berkeley.edu",
            files=(
                RemoteFile(
                    file="imagenet-r.tar",
                    md5="a61312130a589d0ca1a8fca1f2bd3337",
                    urls=("https://people.eecs.berkeley.edu/~hendrycks/imagenet-r.tar",),
                    unpack=True,
                ),
            ),
        ),
    ),
)
