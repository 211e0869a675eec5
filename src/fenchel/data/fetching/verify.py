"""Checking files that are there: published md5 sums, manifests of made files, and readability."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fenchel.data.formats.cifar_binary import read_binary
from fenchel.data.formats.cifar_pickle import read_cifar_pickle
from fenchel.data.formats.idx import read_idx
from fenchel.data.formats.image_list import read_image_list
from fenchel.data.formats.libsvm import read_libsvm
from fenchel.data.formats.mat import read_mat
from fenchel.data.formats.npy import read_npy, read_npz
from fenchel.data.manifest import FILE as MANIFEST
from fenchel.data.manifest import read_manifest
from fenchel.data.pictures import EXTENSIONS, Crop, read_picture
from fenchel.data.registry import DATASETS
from fenchel.data.sets.cifar_c import PUBLIC_FOLDERS, read_corruption
from fenchel.fetching.archive import check_archive
from fenchel.files import is_html, md5_of

Status = Literal["published", "made here", "readable", "bad", "unknown"]


@dataclass(frozen=True)
class Finding:
    """What is known of one file; `bad` is the only status that fails."""

    path: Path
    status: Status
    detail: str = ""


def verify(path: Path, *, checksums: bool = True) -> Iterator[Finding]:
    """A finding for each file below `path` (or for the file itself), in order.

    `published`: it has the md5 of the public download. `made here`: it has the md5 in the manifest
    of `fenchel data make`. `readable`: no md5 is known, but its reader accepts it. `bad`: a wrong
    md5, or unreadable. `unknown`: not a kind of file that data sets consist of.

    Without `checksums` only readability is checked, as suits a subset of a public data set.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. Pass a file or folder to check.")
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"{path} holds no file to check. Pass the folder of a data set.")
    published = _published() if checksums else {}
    for file in files:
        yield _examine(file, published, checksums)


def _published() -> dict[str, str]:
    """The md5 of every public file by its path below the data set's folder."""
    recipes = [entry.recipe for entry in DATASETS.values() if entry.recipe is not None]
    return {file: md5 for recipe in recipes for file, md5 in recipe.published().items()}


def _expected(file: Path, published: dict[str, str]) -> str | None:
    """The published md5 for a file of this name; names as common as 'test' need their folder."""
    for name, md5 in published.items():
        tail = Path(name)
        if file.name == tail.name and (
            re.search(r"[._-]", tail.name) or file.parent.name == tail.parent.name
        ):
            return md5
    return None


def _examine(file: Path, published: dict[str, str], checksums: bool) -> Finding:
    if file.suffix == ".part":
        return Finding(file, "bad", "an unfinished file: run the command that was writing it again")
    with file.open("rb") as stream:
        if is_html(stream.read(512)):
            return Finding(file, "bad", "an HTML page instead of data: fetch it again")
    try:
        read = _reader(file)
        if read is not None:
            read(file)
        made = read_manifest(file.parent).get(file.stem) if checksums else None
    except (ValueError, OSError) as error:
        return Finding(file, "bad", str(error).removeprefix(f"{file}: "))
    wanted = made.md5 if made is not None else _expected(file, published)
    if wanted is not None:
        found = md5_of(file)
        if found != wanted:
            return Finding(file, "bad", f"md5 {found} instead of {wanted}: fetch it again")
        return Finding(file, "published" if made is None else "made here", f"md5 {found}")
    return Finding(file, "unknown" if read is None else "readable")


def _reader(file: Path) -> Callable[[Path], object] | None:
    """The reader for a file of this name, if it is a kind that data sets consist of."""
    name, suffix = file.name.lower(), file.suffix.lower()
    if "ubyte" in name and (kind := re.search(r"idx([13])", name)):
        return lambda path: read_idx(path, dimensions=int(kind[1]))
    if file.parent.name in PUBLIC_FOLDERS.values() and suffix == ".npy" and name != "labels.npy":
        return read_corruption
    if name in ("usps", "usps.t", "usps.bz2", "usps.t.bz2"):
        return lambda path: read_libsvm(path, features=256)
    if suffix == ".bin":
        fine = file.parent.name == "cifar-100-binary" or name in ("train.bin", "test.bin")
        return lambda path: read_binary(path, 2 if fine else 1)
    if file.parent.name in ("cifar-10-batches-py", "cifar-100-python"):
        return read_cifar_pickle if suffix in ("", ".meta") else None
    if name in ("image_list.txt", "mnist_m_train_labels.txt", "mnist_m_test_labels.txt"):
        return read_image_list
    if name == MANIFEST:
        return lambda path: read_manifest(path.parent)
    if suffix in (".tar", ".tgz", ".zip") or name.endswith((".tar.gz", ".tar.bz2", ".tar.xz")):
        return check_archive
    if suffix in EXTENSIONS:
        return lambda path: read_picture(path, Crop())
    return {".npy": read_npy, ".npz": read_npz, ".mat": read_mat}.get(suffix)
