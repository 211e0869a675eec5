"""Images to predict: a folder, an array or an archive, read one at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from fenchel.data.formats.npy import read_npy, read_npz
from fenchel.data.pictures import EXTENSIONS, Crop, pictures_by_class, read_picture
from fenchel.files import digest_of

SAMPLED_SIZES = 64
"""So many files are opened before a run begins, to see whether all have one size."""

UNKNOWN_LABEL = -1


@dataclass(frozen=True)
class ImageFiles:
    """Images to predict, in the order of their names.

    Attributes:
        names: one per image; files by their path within the folder, entries of arrays by position.
        read: gives one image: uint8 (H, W, C) or (H, W), or floats that go to the model as they are.
        labels: the class of each image, `UNKNOWN_LABEL` where it is not known; None if none is.
        folders: the names of the class folders, and `folder_of` the position of each image's.
    """

    names: Sequence[str]
    read: Callable[[int], npt.NDArray[Any]]
    labels: npt.NDArray[np.int64] | None = None
    folders: tuple[str, ...] | None = None
    folder_of: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def sorted_by_class(self) -> bool:
        """Whether their own order would bring one class after the other."""
        return self.folders is not None or self.labels is not None

    @property
    def digest(self) -> str:
        """Names the pile: its names in their order, and the labels that came with it."""
        labels = np.zeros(0) if self.labels is None else self.labels
        return digest_of("\n".join(self.names), labels)

    def shown(self, name: str) -> Image.Image | None:
        """The image of that name as a picture, if it is one: bytes, or floats in [0, 1]."""
        try:
            values = np.asarray(self.read(self._places[name]))
        except (KeyError, OSError, ValueError):
            return None
        if values.dtype != np.uint8:
            if values.ndim == 3 and values.shape[0] in (1, 3):
                values = np.moveaxis(values, 0, -1)
            values = (np.clip(np.nan_to_num(values), 0, 1) * 255).astype(np.uint8)
        if values.ndim == 3 and values.shape[-1] == 1:
            values = values[..., 0]
        is_picture = values.ndim == 2 or (values.ndim == 3 and values.shape[-1] in (3, 4))
        return Image.fromarray(values) if is_picture else None

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def order(self, *, shuffle: bool | None = None, seed: int = 0) -> npt.NDArray[np.int64]:
        """The order in which they are predicted.

        Images sorted by class make every batch a biased sample, so they are shuffled by default; others
        keep their order, as a stream would. Where an image comes does not depend on the others: without
        one of them the rest keeps its order.
        """
        every = np.arange(len(self), dtype=np.int64)
        if not (self.sorted_by_class if shuffle is None else shuffle):
            return every
        keys = [digest_of(str(seed), name) for name in self.names]
        return np.array(sorted(range(len(self)), key=keys.__getitem__), dtype=np.int64)


def read_images(path: Path, *, size: int | None = None, mode: str = "RGB") -> ImageFiles:
    """A folder of images (in one folder per class, or not), an `.npy` file, or an `.npz` with labels.

    Arrays hold uint8 images (N, H, W, C) or (N, H, W), or floats that go to the model as they are.
    """
    if path.is_dir():
        return _folder(path, crop_to(size), mode)
    if not path.is_file():
        raise FileNotFoundError(
            f"images come from a folder, an .npy or an .npz file; there is no {path}."
        )
    labels = None
    if path.suffix == ".npz":
        table = read_npz(path)
        images = next((table[key] for key in ("images", "x", "X", "data") if key in table), None)
        labels = next((table[key] for key in ("labels", "y", "Y") if key in table), None)
        if images is None:
            raise ValueError(f"{path}: must hold an array 'images'; found {', '.join(table)}.")
    elif path.suffix == ".npy":
        images = read_npy(path)
    else:
        raise ValueError(f"images come from a folder, an .npy or an .npz file; got {path.name!r}.")
    check_array(images, path)
    names = [str(row) for row in range(len(images))]
    return ImageFiles(names, images.__getitem__, _integers(labels, len(images), path))


def crop_to(size: int | None) -> Crop:
    """How pictures become squares of `size`: a little more of the short side is kept, then cut off."""
    return Crop() if size is None else Crop(size, round(size * 8 / 7))


def _integers(
    labels: npt.NDArray[Any] | None, count: int, path: Path
) -> npt.NDArray[np.int64] | None:
    """The labels of an archive as one integer per image."""
    if labels is None:
        return None
    flat = labels.reshape(-1)
    if len(flat) != count:
        raise ValueError(f"{path}: {count} images need as many labels; found {len(flat)}.")
    if flat.dtype.kind not in "iub" and not bool((flat == np.floor(flat)).all()):
        raise ValueError(f"{path}: labels are class numbers 0, 1, 2, ...; got {flat.dtype} values.")
    return flat.astype(np.int64)


def _folder(path: Path, fit: Crop, mode: str) -> ImageFiles:
    folders = sorted(
        entry.name for entry in path.iterdir() if entry.is_dir() and entry.name[0] != "."
    )
    files, positions = pictures_by_class(path, folders)
    by_class = bool(files)
    if not by_class:
        files = sorted(entry.name for entry in path.iterdir() if entry.suffix.lower() in EXTENSIONS)
    if not files:
        raise ValueError(
            f"{path}: no images found ({', '.join(sorted(EXTENSIONS))}). Check the folder."
        )
    if fit.size is None:
        _require_one_size(path, files)

    def read(index: int) -> npt.NDArray[Any]:
        return read_picture(path / files[index], fit, mode)

    if not by_class:
        return ImageFiles(files, read)
    used = sorted(set(positions))  # folders without images are none
    place = {position: index for index, position in enumerate(used)}
    return ImageFiles(
        files,
        read,
        folders=tuple(folders[position] for position in used),
        folder_of=np.array([place[position] for position in positions], np.int64),
    )


def _require_one_size(path: Path, files: Sequence[str]) -> None:
    """Refuse photographs of several sizes before anything is computed; a damaged file is told later."""
    sizes: dict[tuple[int, int], str] = {}
    for name in files[:: -(-len(files) // SAMPLED_SIZES)]:
        try:
            with Image.open(path / name) as picture:
                sizes.setdefault(picture.size, name)
        except Exception:
            continue
    if len(sizes) > 1:
        (first, one), (second, other), *_ = sizes.items()
        raise ValueError(
            f"{path}: images must have one size; {one} has {first[0]} x {first[1]} pixels and {other} has "
            f"{second[0]} x {second[1]}. Pass size= to resize them and cut a square."
        )


def check_array(images: npt.NDArray[Any], path: Path | str) -> None:
    """Refuse arrays that hold no images, in the name of where they come from."""
    channels_last = images.dtype == np.uint8 and (
        images.ndim == 3 or (images.ndim == 4 and images.shape[-1] in (1, 3, 4))
    )
    if (
        images.ndim == 0
        or len(images) == 0
        or not (channels_last or (images.dtype.kind == "f" and images.ndim >= 2))
    ):
        raise ValueError(
            f"{path}: images are uint8 (N, H, W, C) or floats (N, ...) ready for the model; got "
            f"{images.dtype} of shape {images.shape}. Convert them first."
        )
