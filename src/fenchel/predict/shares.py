"""A pile of images as several streams: equal shares of it, or one stream per folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fenchel.predict.images import ImageFiles, read_images


@dataclass(frozen=True)
class Share:
    """One stream of a pile. Its name is part of the names of its files."""

    name: str
    images: Path
    """Where its images are, or those of the whole pile."""
    number: int = 0
    count: int = 1

    def read(self, *, size: int | None, mode: str, shuffle: bool | None, seed: int) -> ImageFiles:
        """Its images: consecutive ones in the order of the pile."""
        whole = read_images(self.images, size=size, mode=mode)
        if self.count == 1:
            return whole
        order = whole.order(shuffle=shuffle, seed=seed)
        bounds = [len(whole) * number // self.count for number in (self.number, self.number + 1)]
        # Where an image comes does not depend on the others, so the share has the order of the pile.
        return _chosen(whole, np.sort(order[slice(*bounds)]))

    def file(self, path: Path) -> Path:
        """Where the share writes what a whole run would write to `path`.

        >>> str(Share("0-of-2", Path("photos")).file(Path("out/predictions.csv")))
        'out/predictions-0-of-2.csv'
        """
        return path.with_name(f"{path.stem}-{self.name}{path.suffix}")


def equal_shares(images: Path, count: int) -> list[Share]:
    """A pile in `count` streams of equal length, but for one image."""
    return [Share(f"{number}-of-{count}", images, number, count) for number in range(count)]


def share_per_folder(images: Path) -> list[Share]:
    """One stream per folder within `images`, named as the folder is."""
    folders = sorted(
        entry
        for entry in (images.iterdir() if images.is_dir() else ())
        if entry.is_dir() and entry.name[0] != "."
    )
    if not folders:
        raise ValueError(
            f"one stream per folder needs folders in images=; {images} has none. Leave by_folder=True "
            "out, or name the folder above."
        )
    return [Share(folder.name, folder) for folder in folders]


def _chosen(images: ImageFiles, places: npt.NDArray[np.int64]) -> ImageFiles:
    def read(index: int) -> npt.NDArray[Any]:
        return images.read(int(places[index]))

    return replace(
        images,
        names=[images.names[place] for place in places.tolist()],
        read=read,
        labels=None if images.labels is None else images.labels[places],
        folder_of=None if images.folder_of is None else images.folder_of[places],
    )
