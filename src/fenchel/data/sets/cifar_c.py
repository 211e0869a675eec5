"""CIFAR-10-C and CIFAR-100-C: npy files, or the same corruptions applied on the fly.

`<corruption>.npy` is uint8 (5 N, 32, 32, 3): severity s fills rows (s-1) N .. s N, in the order of
the clean test set; `labels.npy` repeats its labels five times. Files written by `fenchel data
make` carry a manifest beside them, which says which severities were made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fenchel.data.base import Dataset, Images, Labels, from_arrays
from fenchel.data.corruptions import CORRUPTIONS, SEVERITIES
from fenchel.data.formats.npy import read_npy
from fenchel.data.home import dataset_folder, find
from fenchel.data.manifest import read_manifest
from fenchel.data.registry import DATASETS, DatasetEntry
from fenchel.data.sets.cifar import CIFAR10_CLASSES, CIFAR100_CLASSES
from fenchel.data.shifts import CORRUPTED_OPTIONS, check_corruption, corrupted
from fenchel.fetching.retrieval import GIBIBYTE, RemoteFile, Retrieval
from fenchel.files import bad_file

PUBLIC_FOLDERS = {"cifar10-c": "CIFAR-10-C", "cifar100-c": "CIFAR-100-C"}
CLEAN = {"cifar10-c": "cifar10", "cifar100-c": "cifar100"}
CLASSES = {"cifar10-c": CIFAR10_CLASSES, "cifar100-c": CIFAR100_CLASSES}


def _read(
    name: str,
    split: str,
    root: Path | None,
    *,
    corruption: str | None = None,
    severity: int = 5,
    source: str = "auto",
    seed: int = 0,
    textures: str | Path | None = None,
) -> Dataset:
    corruption = check_corruption(name, corruption, severity, source)
    folder = find_folder(name, root)
    wanted = source == "files" or (source == "auto" and folder is not None)
    if wanted and folder is not None:
        return _from_files(name, folder, corruption, severity)
    if source == "files":
        raise FileNotFoundError(
            f"{name} needs {PUBLIC_FOLDERS[name]}/{corruption}.npy in "
            f"{dataset_folder(name, root)}; there is none. Run 'fenchel data fetch {name}' or "
            f"'fenchel data make {name}', or let source=generated make it on the fly."
        )
    clean = read_clean(name, root)
    made = corrupted(clean, corruption, severity, constants="cifar", seed=seed, textures=textures)
    return replace(made, name=name)


def find_folder(name: str, root: Path | None) -> Path | None:
    """The folder with the npy files of `name`, if there is one."""
    folder = dataset_folder(name, root)
    public = PUBLIC_FOLDERS[name]
    found = find(folder, [f"{public}/labels.npy", f"{name}/{public}/labels.npy", "labels.npy"])
    return found.parent if found else None


def read_clean(name: str, root: Path | None) -> Dataset:
    """The clean test set that `name` corrupts, below `root` if it is there, else in the cache."""
    entry = DATASETS[CLEAN[name]]
    try:
        return entry.read("test", root)
    except FileNotFoundError as missing:
        if root is None:
            raise FileNotFoundError(
                f"{name} is made from the clean {CLEAN[name]}. {missing}"
            ) from missing
        return read_clean(name, None)


def _from_files(name: str, folder: Path, corruption: str, severity: int) -> Dataset:
    path = folder / f"{corruption}.npy"
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing. Fetch {name} again, or run 'fenchel data make {name} "
            f"--corruption {corruption}'."
        )
    images, labels = read_corruption(path), read_labels(folder)
    made = read_manifest(folder).get(corruption)
    if made is not None and severity not in made.severities:
        raise FileNotFoundError(
            f"{path} was made with severities {', '.join(map(str, made.severities))} alone, not "
            f"{severity}. Run 'fenchel data make {name} --severity {severity}'."
        )
    count = len(images) // len(SEVERITIES)
    if len(labels) not in (count, len(images)):
        rule = f"must hold {len(images)} labels, one per row of {path.name}"
        raise bad_file(folder / "labels.npy", rule, str(len(labels)))
    rows = slice((severity - 1) * count, severity * count)
    return from_arrays(
        name,
        images[rows],
        labels[rows] if len(labels) == len(images) else labels,
        classes=CLASSES[name],
        origin=f"{folder.name} files" if made is None else f"made here with seed {made.seed}",
    )


def read_corruption(path: Path) -> Images:
    """The memory-mapped images of one corruption, all severities."""
    images = read_npy(path)
    fits = images.dtype == np.uint8 and images.shape[1:] == (32, 32, 3)
    if not fits or len(images) == 0 or len(images) % len(SEVERITIES):
        rule = "must be uint8 (5 N, 32, 32, 3), a fifth for each severity"
        raise bad_file(path, rule, f"{images.dtype} {images.shape}")
    return images


def read_labels(folder: Path) -> Labels:
    """The labels, one per row."""
    labels = read_npy(folder / "labels.npy")
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        rule = "must be a vector of integers"
        raise bad_file(folder / "labels.npy", rule, f"{labels.dtype} {labels.shape}")
    return np.array(labels, np.int64)


def _is_present(name: str, folder: Path) -> bool:
    found = find(folder, [f"{PUBLIC_FOLDERS[name]}/labels.npy"])
    return found is not None and any((found.parent / f"{c}.npy").exists() for c in CORRUPTIONS)


def _write_example(name: str, folder: Path) -> Mapping[str, Any]:
    random = np.random.default_rng(0)
    target = folder / PUBLIC_FOLDERS[name]
    target.mkdir(parents=True, exist_ok=True)
    labels = random.integers(0, len(CLASSES[name]), 6)
    np.save(target / "labels.npy", np.tile(labels, len(SEVERITIES)))
    images = random.integers(0, 256, (6 * len(SEVERITIES), 32, 32, 3), dtype=np.uint8)
    np.save(target / "fog.npy", images)
    return {"corruption": "fog", "severity": 3}


def _recipe(record: int, archive: str, md5: str) -> Retrieval:
    url = f"https://zenodo.org/records/{record}/files/{archive}?download=1"
    remote = RemoteFile(file=archive, md5=md5, urls=(url,), unpack=True, most_bytes=4 * GIBIBYTE)
    return Retrieval(source=f"zenodo.org record {record}", files=(remote,))


_RECIPES = {
    "cifar10-c": _recipe(2535967, "CIFAR-10-C.tar", "56bf5dcef84df0e2308c6dcbcbbd8499"),
    "cifar100-c": _recipe(3555552, "CIFAR-100-C.tar", "11f0ed0f1191edbf9fa23466ae6021d3"),
}

for _name, _recipe_of in _RECIPES.items():
    DATASETS.add(
        _name,
        DatasetEntry(
            what=f"{PUBLIC_FOLDERS[_name]}: 19 corruptions x 5 severities of the test photos",
            splits=("test",),
            read=partial(_read, _name),
            is_present=partial(_is_present, _name),
            write_example=partial(_write_example, _name),
            recipe=_recipe_of,
            by_hand=f"Or make it from {CLEAN[_name]}: 'fenchel data make {_name}'.",
            options=CORRUPTED_OPTIONS,
            clean=CLEAN[_name],
        ),
    )
