"""Arrays on disk: `images.npy` and `labels.npy` in a folder, or one `.npz` file with both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fenchel.data.base import Dataset, from_arrays
from fenchel.data.formats.npy import read_npy, read_npz
from fenchel.data.home import find
from fenchel.data.registry import DATASETS, DatasetEntry
from fenchel.files import bad_file

IMAGE_KEYS = ("images", "x", "X", "data", "arr_0")
LABEL_KEYS = ("labels", "y", "Y", "targets", "arr_1")


def _read(split: str, root: Path | None) -> Dataset:
    if root is None:
        raise ValueError("the data set 'arrays' needs root, a folder or an .npz file.")
    if root.suffix == ".npz" or root.is_file():
        table: Mapping[str, npt.NDArray[Any]] = read_npz(root)
        inputs = _pick(root, table, split, IMAGE_KEYS)
        labels = _pick(root, table, split, LABEL_KEYS)
    else:
        inputs = read_npy(_file(root, split, IMAGE_KEYS))
        labels = read_npy(_file(root, split, LABEL_KEYS))
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    try:
        return from_arrays("arrays", inputs, labels, split=split, origin=root.name)
    except ValueError as error:
        raise ValueError(f"{root}: {error}") from error


def _names(split: str, keys: tuple[str, ...]) -> list[str]:
    return [f"{key}_{split}" for key in keys] + [f"{split}_{key}" for key in keys] + list(keys)


def _pick(
    path: Path, table: Mapping[str, npt.NDArray[Any]], split: str, keys: tuple[str, ...]
) -> npt.NDArray[Any]:
    for name in _names(split, keys):
        if name in table:
            return table[name]
    rule = f"must hold an array named {keys[0]}, {keys[1]} or {keys[0]}_{split}"
    raise bad_file(path, rule, ", ".join(table) or "none", "Rename the arrays.")


def _file(folder: Path, split: str, keys: tuple[str, ...]) -> Path:
    names = [f"{name}.npy" for name in _names(split, keys)]
    if found := find(folder, names):
        return found
    raise FileNotFoundError(
        f"{folder} must hold {keys[0]}.npy or {keys[0]}_{split}.npy; it does not."
    )


def _write_example(folder: Path) -> Mapping[str, Any]:
    random = np.random.default_rng(0)
    for split in ("train", "test"):
        images = random.integers(0, 256, (6, 12, 12, 3), dtype=np.uint8)
        np.save(folder / f"images_{split}.npy", images)
        np.save(folder / f"labels_{split}.npy", np.arange(6) % 3)
    return {}


DATASETS.add(
    "arrays",
    DatasetEntry(
        what="npy or npz arrays: uint8 (N, H, W, C) images or float32 (N, D) vectors, and labels",
        splits=("test", "train"),
        read=_read,
        is_present=lambda folder: folder.exists(),
        write_example=_write_example,
        provider="your own",
        by_hand="Pass your folder or .npz file as root.",
    ),
)
