"""USPS digits: libsvm text in bz2, 256 values in [-1, 1] per line, labels 1 to 10 for digits 0 to 9."""

from __future__ import annotations

import bz2
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fenchel.data.base import Dataset, from_arrays
from fenchel.data.formats.libsvm import read_libsvm
from fenchel.data.home import find, locate
from fenchel.data.registry import DATASETS, DatasetEntry
from fenchel.data.shifts import AS_DIGITS_OPTION, as_digits
from fenchel.fetching.retrieval import RemoteFile, Retrieval
from fenchel.files import bad_file

SIDE = 16
FILES = {"train": "usps.bz2", "test": "usps.t.bz2"}
MD5 = {
    "usps.bz2": "ec16c51db3855ca6c91edd34d0e9b197",
    "usps.t.bz2": "8ea070ee2aca1ac39742fdd1ef5ed118",
}
ADDRESS = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass"


def _read(split: str, root: Path | None, *, digits: bool = False) -> Dataset:
    path = locate("usps", root, [FILES[split], FILES[split].removesuffix(".bz2")])
    values, labels = read_libsvm(path, features=SIDE * SIDE)
    if labels.min() < 1 or labels.max() > 10:
        raise bad_file(path, "labels must lie in 1..10", f"{labels.min()}..{labels.max()}")
    if np.abs(values).max() > 1.001:
        raise bad_file(path, "values must lie in [-1, 1]", f"{np.abs(values).max():g}")
    pixels = np.rint((np.clip(values, -1, 1) + 1) * 127.5).astype(np.uint8)
    dataset = from_arrays(
        "usps",
        pixels.reshape(-1, SIDE, SIDE),
        labels - 1,
        classes=[str(k) for k in range(10)],
        split=split,
        origin="libsvm files",
    )
    return as_digits(dataset) if digits else dataset


def _is_present(folder: Path) -> bool:
    return all(find(folder, [file, file.removesuffix(".bz2")]) for file in FILES.values())


def _write_example(folder: Path) -> Mapping[str, Any]:
    random = np.random.default_rng(0)
    for file in FILES.values():
        lines = []
        for label in range(1, 7):
            values = random.uniform(-1, 1, SIDE * SIDE)
            lines.append(f"{label} " + " ".join(f"{i + 1}:{v:.6g}" for i, v in enumerate(values)))
        (folder / file).write_bytes(bz2.compress("\n".join(lines).encode()))
    return {}


DATASETS.add(
    "usps",
    DatasetEntry(
        what="USPS: 7,291 + 2,007 digits of postal codes, 16 x 16 grey",
        splits=("test", "train"),
        read=_read,
        is_present=_is_present,
        write_example=_write_example,
        recipe=Retrieval(
            source="csie.ntu.edu.tw",
            files=tuple(
                RemoteFile(file=file, md5=md5, urls=(f"{ADDRESS}/{file}",))
                for file, md5 in MD5.items()
            ),
        ),
        by_hand=f"Get usps.bz2 and usps.t.bz2 from {ADDRESS}.",
        options=AS_DIGITS_OPTION,
    ),
)
