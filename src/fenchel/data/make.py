"""Making a corrupted data set by name, in the layout of its public download."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from fenchel.data.corruptions import CORRUPTIONS, SEVERITIES
from fenchel.data.home import dataset_folder
from fenchel.data.making.cifar import make_arrays
from fenchel.data.making.imagenet import make_pictures
from fenchel.data.sets import cifar_c, imagenet_c
from fenchel.names import unknown

PUBLIC_FOLDERS = {**cifar_c.PUBLIC_FOLDERS, imagenet_c.NAME: imagenet_c.PUBLIC_FOLDER}
"""The data sets that can be made, and the folders that their downloads unpack to."""
BATCH_SIZES = {imagenet_c.NAME: 25}
DEFAULT_BATCH_SIZE = 250


def make(
    name: str,
    *,
    out: str | Path | None = None,
    root: str | Path | None = None,
    corruptions: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    images: int | None = None,
    seed: int = 0,
    textures: str | Path | None = None,
    workers: int | None = None,
    batch_size: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Path:
    """Make `cifar10-c`, `cifar100-c` or `imagenet-c`; the folder with the files is returned.

    Args:
        name: the data set to make.
        out: the folder in which its public folder is created; by default the cache folder.
        root: the folder of the clean data set; by default the cache folder.
        corruptions: by default all nineteen.
        severities: by default all five.
        images: of `imagenet-c`, how many of the clean images, as many of each class as of any other.
        seed: the seed of the noise.
        textures: folder of the original frost textures; procedural ones without it.
        workers: processes; by default one per core.
        batch_size: images per block of work; no effect on the result.
        say: is told how much disk the files will take, before the first is written.

    What was made with the same settings is kept, so an interrupted call continues.
    """
    if name not in PUBLIC_FOLDERS:
        raise unknown("data set to make", name, PUBLIC_FOLDERS)
    corruptions = list(dict.fromkeys(corruptions or CORRUPTIONS))
    _check(name, corruptions, severities, images, workers, batch_size)
    folder = dataset_folder(name, out)
    if folder.name != PUBLIC_FOLDERS[name]:
        folder = folder / PUBLIC_FOLDERS[name]
    place = None if root is None else Path(root)
    frost = None if textures is None else Path(textures)
    processes = workers or os.cpu_count() or 1
    size = batch_size or BATCH_SIZES.get(name, DEFAULT_BATCH_SIZE)
    if name == imagenet_c.NAME:
        make_pictures(
            imagenet_c.read_clean(place),
            folder,
            corruptions=corruptions,
            severities=severities,
            images=images,
            seed=seed,
            textures=frost,
            workers=processes,
            batch_size=size,
            say=say,
        )
    else:
        make_arrays(
            PUBLIC_FOLDERS[name],
            cifar_c.read_clean(name, place),
            folder,
            corruptions=corruptions,
            severities=severities,
            seed=seed,
            textures=frost,
            workers=processes,
            batch_size=size,
        )
    return folder


def _check(
    name: str,
    corruptions: Sequence[str],
    severities: Sequence[int],
    images: int | None,
    workers: int | None,
    batch_size: int | None,
) -> None:
    for corruption in corruptions:
        if corruption not in CORRUPTIONS:
            raise unknown("corruption", corruption, CORRUPTIONS)
    if not severities or any(severity not in SEVERITIES for severity in severities):
        raise ValueError(f"severities must be among 1 to 5; got {list(severities)}.")
    if any(number is not None and number < 1 for number in (images, workers, batch_size)):
        raise ValueError(
            f"images, workers and batch size must be at least 1; got {images}, {workers} and {batch_size}."
        )
    if images is not None and name != imagenet_c.NAME:
        raise ValueError(
            f"images chooses some of the images of {imagenet_c.NAME}; {name} is made whole. Leave it out."
        )
