"""Fetching a data set by name: the official address first, then its mirrors."""

from __future__ import annotations

from pathlib import Path

from fenchel.data.home import dataset_folder
from fenchel.data.registry import DATASETS, DatasetEntry
from fenchel.fetching.retrieval import Retrieval
from fenchel.fetching.retrieve import Say, retrieve
from fenchel.files import md5_of


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
    retrieve(name, recipe, folder, say=say, otherwise=entry.by_hand)
    say(f"{name} is ready in {folder} (md5 verified)")


def _is_complete(entry: DatasetEntry, recipe: Retrieval, folder: Path) -> bool:
    if not entry.is_present(folder):
        return False
    there = {file: md5 for file, md5 in recipe.checksums.items() if (folder / file).exists()}
    return all(md5_of(folder / file) == md5 for file, md5 in there.items())
