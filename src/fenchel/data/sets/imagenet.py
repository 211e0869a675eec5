"""ImageNet, ImageNet-C and ImageNet-R: folders of JPEG files named by WordNet id (wnid).

Labels are positions in the sorted list of the 1,000 wnids, whatever subset a folder holds.
ImageNet and -R are resized to 256 on the short side and cut to 224; -C is 224 already and is never
cropped a second time; -R has 200 of the classes, told by `class_mask`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fenchel.data.base import Dataset, bad_file
from fenchel.data.corruptions import CORRUPTIONS, SEVERITIES
from fenchel.data.fetching.retrieval import GIBIBYTE, RemoteFile, Retrieval
from fenchel.data.home import dataset_folder, find, locate
from fenchel.data.pictures import Crop, PictureContent, PictureReader, pictures_by_class
from fenchel.data.registry import DATASETS, DatasetEntry
from fenchel.names import unknown

SIZE = 224
CROP = Crop(size=SIZE, short_side=256)
AS_IT_IS = Crop(size=SIZE)


@cache
def wnids() -> tuple[str, ...]:
    """The 1,000 WordNet ids of the classes, in label order."""
    text = package_files("fenchel.data.sets").joinpath("imagenet_wnids.txt").read_text("ascii")
    return tuple(text.split())


def _dataset(name: str, split: str, folder: Path, fit: Crop, origin: str) -> Dataset:
    files, labels = pictures_by_class(folder, wnids())
    if not files:
        rule = "must hold folders named by wnid (n01440764, ...) with pictures"
        raise bad_file(folder, rule, "none", "Sort the pictures into one folder per wnid.")
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


def _read_imagenet(split: str, root: Path | None, *, cropped: bool = False) -> Dataset:
    folder = _folder_of_wnids("imagenet", root, [split, f"imagenet/{split}"])
    return _dataset("imagenet", split, folder, AS_IT_IS if cropped else CROP, "JPEG files")


def _read_imagenet_r(split: str, root: Path | None) -> Dataset:
    folder = _folder_of_wnids("imagenet-r", root, ["imagenet-r"])
    dataset = _dataset("imagenet-r", split, folder, CROP, "JPEG files")
    mask = np.zeros(len(wnids()), bool)
    mask[dataset.labels] = True
    return replace(dataset, class_mask=mask)


def _folder_of_wnids(name: str, root: Path | None, candidates: list[str]) -> Path:
    """One of the candidates, or `root` itself if the wnids lie there."""
    folder = dataset_folder(name, root)
    if folder.is_dir() and any(path.name in wnids() for path in folder.iterdir()):
        return folder
    return locate(name, root, candidates)


def _read_imagenet_c(
    split: str, root: Path | None, *, corruption: str | None = None, severity: int = 5
) -> Dataset:
    if corruption is None:
        raise ValueError(
            "imagenet-c needs the name of a corruption; none was given. "
            "Write for example imagenet-c:corruption=fog,severity=5."
        )
    if corruption not in CORRUPTIONS:
        raise unknown("corruption", corruption, CORRUPTIONS)
    if severity not in SEVERITIES:
        raise ValueError(f"severity must be 1 to 5; got {severity!r}.")
    folder = locate("imagenet-c", root, _places(corruption, severity))
    return _dataset("imagenet-c", split, folder, AS_IT_IS, "JPEG files of 224 x 224")


def _places(corruption: str, severity: int) -> list[str]:
    """Where a corruption lies: bare, below ImageNet-C, or below the name of its archive."""
    tail = f"{corruption}/{severity}"
    archives = [remote.file.removesuffix(".tar") for remote in IMAGENET_C_FILES]
    return [tail, f"ImageNet-C/{tail}", *(f"{archive}/{tail}" for archive in archives)]


def _write_pictures(folder: Path, chosen: tuple[str, ...], height: int, width: int) -> None:
    random = np.random.default_rng(0)
    for wnid in chosen:
        (folder / wnid).mkdir(parents=True, exist_ok=True)
        for k in range(2):
            pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / wnid / f"{wnid}_{k}.JPEG")


def _example(folder: Path) -> Mapping[str, Any]:
    for split in ("val", "train"):
        _write_pictures(folder / split, (wnids()[0], wnids()[7], wnids()[999]), 230, 300)
    return {}


def _example_r(folder: Path) -> Mapping[str, Any]:
    _write_pictures(folder / "imagenet-r", (wnids()[1], wnids()[2], wnids()[9]), 300, 240)
    return {}


def _example_c(folder: Path) -> Mapping[str, Any]:
    _write_pictures(folder / "fog" / "3", (wnids()[3], wnids()[500]), SIZE, SIZE)
    return {"corruption": "fog", "severity": 3}


IMAGENET_C_FILES = tuple(
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
        options={"cropped": "True if the files are 224 x 224 centre crops already"},
    ),
)
DATASETS.add(
    "imagenet-c",
    DatasetEntry(
        what="ImageNet-C: 19 corruptions x 5 severities of ImageNet, 224 x 224",
        splits=("test",),
        read=_read_imagenet_c,
        is_present=lambda folder: any(
            find(folder, _places(corruption, severity))
            for corruption in CORRUPTIONS
            for severity in SEVERITIES
        ),
        write_example=_example_c,
        recipe=Retrieval(source="zenodo.org record 2235448", files=IMAGENET_C_FILES),
        options={"corruption": "which of the 19", "severity": "1 to 5 (default 5)"},
        clean="imagenet",
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
