"""Data sets by name: what each is, how it is read, and where it comes from."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fenchel.data.base import Dataset
from fenchel.data.home import dataset_folder
from fenchel.names import Registry, parse_spec, unknown

if TYPE_CHECKING:
    from fenchel.fetching.retrieval import Retrieval


@dataclass(frozen=True, kw_only=True)
class DatasetEntry:
    """One registered data set.

    Attributes:
        what: one line for listings.
        splits: the names `split` may take, the default first.
        read: (split, root, **options) -> Dataset; `root` is None for the cache folder.
        is_present: (folder) -> whether the files are there.
        write_example: writes a tiny stand-in of random inputs in the public layout into a folder
            and returns the options with which `read` reads it. Contract tests run on it; every data
            set of this library has one.
        recipe: how `fenchel data fetch` gets it, if it can.
        provider: who provides it, where there is no recipe to say so.
        by_hand: how to get it otherwise.
        options: what `load` accepts besides split and root, with a short explanation of each.
        clean: the data set that this one corrupts, where it exists corrupted alone.
    """

    what: str
    splits: tuple[str, ...]
    read: Callable[..., Dataset]
    write_example: Callable[[Path], Mapping[str, Any]] | None = None
    is_present: Callable[[Path], bool] = lambda folder: True
    recipe: Retrieval | None = None
    provider: str = ""
    by_hand: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    clean: str = ""

    @property
    def source(self) -> str:
        """Where it comes from, in a few words."""
        return self.recipe.source if self.recipe else self.provider


def _entry(name: str, read: Callable[..., Dataset] | DatasetEntry, **facts: Any) -> DatasetEntry:
    """An entry from a function (split, root, **options) -> Dataset and the other attributes."""
    if isinstance(read, DatasetEntry):
        return read
    facts.setdefault("what", (inspect.getdoc(read) or "").partition("\n")[0])
    facts.setdefault("splits", ("test",))
    return DatasetEntry(read=read, **facts)


DATASETS: Registry[DatasetEntry] = Registry("data set", group="fenchel.datasets", adopt=_entry)


def register_all() -> None:
    """Import every module of `fenchel.data.sets`; each registers its data sets."""
    package = importlib.import_module("fenchel.data.sets")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"fenchel.data.sets.{module.name}")


def load(
    name: str, split: str | None = None, root: str | Path | None = None, **options: Any
) -> Dataset:
    """The data set `name`, or `name:option=value,...`, ready to read.

    Args:
        name: a registered name; `fenchel data list` shows them.
        split: `test` (the default where there is one), `train`, ...
        root: the folder that holds the files; by default the cache folder of `fenchel data fetch`.
        options: what the data set understands, such as `corruption` and `severity` of `cifar10-c`.

    >>> clusters = load("gaussians", shift=0.6, samples=8)
    >>> clusters.read([0, 1]).shape
    (2, 100)
    """
    name, written = parse_spec(name)
    entry = DATASETS[name]
    options = {**written, **options}
    split = options.pop("split", split) if split is None else split
    split = entry.splits[0] if split is None else split
    if split not in entry.splits:
        raise unknown(f"split of {name}", split, entry.splits)
    for option in options:
        if option not in entry.options:
            raise unknown(f"option of the data set {name!r}", option, entry.options)
    return entry.read(split, None if root is None else dataset_folder(name, root), **options)
