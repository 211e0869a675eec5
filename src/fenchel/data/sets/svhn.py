"""SVHN, cropped digits: MATLAB files with X (32, 32, 3, N) and y (N, 1), digit 0 as label 10."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fenchel.data.base import Dataset, from_arrays
from fenchel.data.formats.mat import read_mat
from fenchel.data.home import find, locate
from fenchel.data.registry import DATASETS, DatasetEntry
from fenchel.data.shifts import AS_DIGITS_OPTION, as_digits
from fenchel.fetching.retrieval import RemoteFile, Retrieval
from fenchel.files import bad_file

ADDRESS = "http://ufldl.stanford.edu/housenumbers"
MD5 = {
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
}


def _read(split: str, root: Path | None, *, digits: bool = False) -> Dataset:
    path = locate("svhn", root, [f"{split}_32x32.mat"])
    images, labels = read_digits(path)
    dataset = from_arrays(
        "svhn", images, labels, classes=[str(k) for k in range(10)], split=split, origin=".mat file"
    )
    return as_digits(dataset) if digits else dataset


def read_digits(path: Path) -> tuple[Any, Any]:
    """Images (N, 32, 32, 3), a view of MATLAB's order, and digits 0 to 9."""
    arrays = read_mat(path)
    if "X" not in arrays or "y" not in arrays:
        raise bad_file(path, "must hold the arrays X and y", ", ".join(arrays) or "none")
    images, labels = arrays["X"], arrays["y"].ravel()
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise bad_file(path, "X must be uint8 (32, 32, 3, N)", f"{images.dtype} {images.shape}")
    if len(labels) != images.shape[3] or len(labels) == 0:
        raise bad_file(path, f"y must hold {images.shape[3]} labels", str(len(labels)))
    if labels.min() < 0 or labels.max() > 10 or (labels % 1).any():
        raise bad_file(path, "y must hold digits 1 to 10", f"{labels.min()}..{labels.max()}")
    return images.transpose(3, 0, 1, 2), labels.astype(np.int64) % 10


def _is_present(folder: Path) -> bool:
    return all(find(folder, [file]) for file in MD5)


def _write_example(folder: Path) -> Mapping[str, Any]:
    from scipy.io import savemat

    random = np.random.default_rng(0)
    for file in MD5:
        images = random.integers(0, 256, (32, 32, 3, 6), dtype=np.uint8)
        labels = np.array([10, 1, 2, 3, 4, 5], np.uint8)[:, None]
        savemat(folder / file, {"X": images, "y": labels}, do_compression=True)
    return {}


DATASETS.add(
    "svhn",
    DatasetEntry(
        what="SVHN: 73,257 + 26,032 house-number digits, 32 x 32",
        splits=("test", "train"),
        read=_read,
        is_present=_is_present,
        write_example=_write_example,
        recipe=Retrieval(
            source="ufldl.stanford.edu",
            files=tuple(
                RemoteFile(file=file, md5=md5, urls=(f"{ADDRESS}/{file}",))
                for file, md5 in MD5.items()
            ),
        ),
        by_hand=f"Get train_32x32.mat and test_32x32.mat from {ADDRESS}.",
        options=AS_DIGITS_OPTION,
    ),
)
