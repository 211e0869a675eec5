"""Where data sets live in the cache, and how a layout is found there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fenchel.fetching.home import home


def dataset_folder(name: str, root: str | Path | None = None) -> Path:
    """The folder of the data set `name`: `root` if given, else its place in the cache."""
    return home() / "data" / name if root is None else Path(root).expanduser()


def find(folder: Path, candidates: Iterable[str]) -> Path | None:
    """The first of `candidates` (relative paths) that exists in `folder`."""
    return next((folder / name for name in candidates if (folder / name).exists()), None)


def locate(name: str, root: str | Path | None, candidates: Iterable[str]) -> Path:
    """The first of `candidates` in the folder of the data set, or an error that says what to do."""
    folder = dataset_folder(name, root)
    candidates = list(candidates)
    for place in (folder, folder / name):
        if found := find(place, candidates):
            return found
    raise FileNotFoundError(
        f"{name} needs {' or '.join(candidates)} in {folder}; there is none. "
        f"Run 'fenchel data fetch {name}', or pass the folder that holds it as root."
    )
