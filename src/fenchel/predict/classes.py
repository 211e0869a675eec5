"""The names of a model's classes, and how the folders of a user's images are matched with them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fenchel.predict.images import UNKNOWN_LABEL, ImageFiles
from fenchel.wnids import wnids

FOLDER_ORDER = "folders"
"""In place of a file: the class folders in sorted order, as torchvision's ImageFolder numbers them."""

_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_MOST_SHOWN = 5


def read_classes(path: Path) -> tuple[str, ...]:
    """The names of the classes in a file: one per line, or JSON: a list, or index -> name.

    JSON may also read index -> [wnid, name], as ImageNet's class index does.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(
            f"class names are read from a file; there is no {path}. Write one name per line, in the order of "
            "the model's outputs."
        ) from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: class names are text in UTF-8 ({error}). Save it as such."
        ) from None
    if path.suffix.lower() != ".json":
        names = tuple(line.strip() for line in text.splitlines() if line.strip())
    else:
        names = _from_json(text, path)
    if not names:
        raise ValueError(f"{path}: holds no class name. Write one per line.")
    return names


def _from_json(text: str, path: Path) -> tuple[str, ...]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path}: is no JSON ({error}).") from None
    if isinstance(found, Mapping):
        keys = list(found)
        if sorted(keys) != sorted(str(index) for index in range(len(keys))):
            raise ValueError(
                f"{path}: maps the numbers 0 to {len(keys) - 1} to names; got the keys {_some(keys)}."
            )
        found = [found[str(index)] for index in range(len(keys))]
    if not isinstance(found, list):
        raise ValueError(
            f"{path}: class names are a list, or index -> name; got {type(found).__name__}."
        )
    return tuple(str(name[-1]) if isinstance(name, list) and name else str(name) for name in found)


@dataclass(frozen=True)
class Labelled:
    """Images with the labels that could be found, and what is to be said about it."""

    images: ImageFiles
    names: tuple[str, ...] | None
    """The names of the classes, in the order of the model's outputs."""
    how: str = ""
    """How labels came about, or why there are none. Empty where nothing suggests labels."""
    classes: int = 0
    """How many classes the model has, where that is known."""


def labelled(
    images: ImageFiles, count: int, names: Sequence[str] | None, *, folder_order: bool = False
) -> Labelled:
    """Give images their labels, for a model of `count` classes (called `names`, if that is known).

    Folders are matched with the classes by name, by number if they are integers, or by wnid.
    """
    return replace(_matched(images, count, names, folder_order), classes=count)


def _matched(
    images: ImageFiles, count: int, names: Sequence[str] | None, folder_order: bool
) -> Labelled:
    known = None if names is None else tuple(names)
    if known is not None and len(known) != count:
        raise ValueError(
            f"there must be one name per class; got {len(known)} names, and the model has {count} outputs. "
            "Check the file of class names, and the model."
        )
    if images.labels is not None:
        _require_within(images.labels.tolist(), count, "labels")
        return Labelled(images, known, "labels come with the images")
    if images.folders is None:
        return Labelled(images, known)
    if len(images.folders) > count:
        raise ValueError(
            f"the images lie in {len(images.folders)} class folders ({_some(images.folders)}), but the model "
            f"has {count} outputs. Check the folder: it may hold something else than classes; or the model."
        )
    if folder_order:
        known = known or images.folders + ("",) * (count - len(images.folders))
        places: list[int | None] = list(range(len(images.folders)))
        return _with(images, places, known, "folders are classes in sorted order, as you said")
    for find, how in _ways(count, known):
        places = [find(folder) for folder in images.folders]
        if any(place is not None for place in places):
            _require_within([place for place in places if place is not None], count, "folders")
            return _with(images, places, known, f"folders are matched with classes by {how}")
    return Labelled(images, known, _unmatched(images.folders, known))


def _with(
    images: ImageFiles, places: list[int | None], names: tuple[str, ...] | None, how: str
) -> Labelled:
    assert images.folders is not None
    assert images.folder_of is not None
    label_of = np.array([UNKNOWN_LABEL if place is None else place for place in places], np.int64)
    lost = [name for name, place in zip(images.folders, places, strict=True) if place is None]
    if lost:
        how += f"; {_some(lost)} is none of them, so their images count for no error rate"
    return Labelled(replace(images, labels=label_of[images.folder_of]), names, how)


def _ways(
    count: int, names: tuple[str, ...] | None
) -> list[tuple[Callable[[str], int | None], str]]:
    """How a folder may name a class, in the order in which that is tried."""
    ways: list[tuple[Callable[[str], int | None], str]] = []
    if names is not None:
        plain = [_plain(name) for name in names]
        by_name = {name: place for place, name in enumerate(plain) if plain.count(name) == 1}
        ways.append((lambda folder: by_name.get(_plain(folder)), "name"))
    if count == len(wnids()):
        by_wnid = {wnid: place for place, wnid in enumerate(wnids())}
        ways.append((by_wnid.get, "wnid"))
    ways.append((_number, "number"))
    return ways


def _plain(name: str) -> str:
    """A name without what differs between spellings: case, spaces, hyphens, underscores."""
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


def _number(folder: str) -> int | None:
    if folder.strip().isdecimal():
        return int(folder)
    return _NUMBERS.index(folder.lower()) if folder.lower() in _NUMBERS else None


def _require_within(labels: Sequence[int], count: int, what: str) -> None:
    outside = sorted(
        {label for label in labels if not 0 <= label < count and label != UNKNOWN_LABEL}
    )
    if outside:
        raise ValueError(
            f"{what} must be class numbers 0 to {count - 1}, for the model has {count} outputs; got "
            f"{_some(map(str, outside))}. Check the labels (do they begin at 1?), or the model."
        )


def _unmatched(folders: Sequence[str], names: tuple[str, ...] | None) -> str:
    if names is None:
        return (
            f"no error rate: which class a folder ({_some(folders)}) means is unknown, for the model does "
            "not name its classes. Name them with classes=names.txt, one per line in the order of the "
            f"outputs; or say classes={FOLDER_ORDER} if it was trained on these folders in sorted order."
        )
    return (
        f"no error rate: no folder ({_some(folders)}) has the name of a class ({_some(names)}). Rename the "
        "folders, or name the classes with classes=names.txt."
    )


def _some(names: object) -> str:
    every = [str(name) for name in names]  # type: ignore[attr-defined]
    rest = f" and {len(every) - _MOST_SHOWN} more" if len(every) > _MOST_SHOWN else ""
    return ", ".join(every[:_MOST_SHOWN]) + rest
