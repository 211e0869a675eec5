"""Image files read one batch at a time: decode, resize and crop; nothing is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from fenchel.data.base import Images, Indices
from fenchel.files import bad_file, digest_of

EXTENSIONS = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff"})
SAMPLED_FILES = 512
MOST_PIXELS = 100_000_000  # a decoded image of 300 MB: more is a mistake or an attack


@dataclass(frozen=True)
class Crop:
    """How a picture becomes (size, size): resize its short side to `short_side`, cut the centre.

    Without `short_side` the picture must have the size already: it is taken as it stands.
    """

    size: int | None = None
    short_side: int | None = None

    def __call__(self, picture: Image.Image, path: Path) -> Image.Image:
        """The picture at its final size."""
        if self.size is None:
            return picture
        if self.short_side is not None:
            return centre_crop(resize_short_side(picture, self.short_side), self.size)
        if picture.size != (self.size, self.size):
            rule = f"pictures must be {self.size} x {self.size} already: none is cropped twice"
            width, height = picture.size
            raise bad_file(path, rule, f"{width} x {height}", "Choose another size or crop.")
        return picture


def resize_short_side(picture: Image.Image, length: int) -> Image.Image:
    """Resize so that the shorter side has `length` pixels, keeping the proportions (bilinear)."""
    width, height = picture.size
    short = min(width, height)
    size = (max(1, width * length // short), max(1, height * length // short))
    return picture if size == picture.size else picture.resize(size, Image.Resampling.BILINEAR)


def centre_crop(picture: Image.Image, size: int) -> Image.Image:
    """The middle size x size pixels; the picture must be at least that large."""
    left = round((picture.width - size) / 2)
    top = round((picture.height - size) / 2)
    return picture.crop((left, top, left + size, top + size))


def read_picture(
    path: Path,
    fit: Crop,
    mode: str = "RGB",
    *,
    content: bytes | None = None,
    formats: tuple[str, ...] | None = None,
) -> Images:
    """One file as uint8 (H, W, C), C = 3 for mode RGB and 1 for mode L.

    Where the `content` is at hand, `path` is only a name for it. `formats` limits the decoders to some.
    """
    try:
        with Image.open(path if content is None else BytesIO(content), formats=formats) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise ValueError(f"a picture of {picture.width} x {picture.height}")
            picture.load()
            fitted = fit(picture.convert(mode), path)
    except FileNotFoundError:
        raise
    except ValueError as error:
        if str(path) in str(error):
            raise
        raise bad_file(path, "must be a readable picture", str(error)) from error
    except Exception as error:  # decoders raise SyntaxError, struct.error, EOFError and more
        raise bad_file(path, "must be a readable picture", str(error)) from error
    pixels = np.asarray(fitted)
    return pixels if pixels.ndim == 3 else pixels[..., None]


@dataclass(frozen=True)
class PictureReader:
    """Reads the files at the given indices; all decoded pictures must have the same shape."""

    folder: Path
    files: Sequence[str] = field(repr=False)
    fit: Crop = Crop()
    mode: str = "RGB"

    def __call__(self, indices: Indices) -> Images:
        """The decoded pictures, uint8 (n, H, W, C)."""
        if not len(indices):
            return np.zeros((0, *self.shape()), np.uint8)
        first = read_picture(self.folder / self.files[indices[0]], self.fit, self.mode)
        batch = np.empty((len(indices), *first.shape), np.uint8)
        batch[0] = first
        for row, index in enumerate(indices[1:], start=1):
            path = self.folder / self.files[index]
            picture = read_picture(path, self.fit, self.mode)
            if picture.shape != first.shape:
                rule = f"pictures of a batch must all have the shape {first.shape}"
                raise bad_file(path, rule, str(picture.shape), "Pass size= to resize and crop.")
            batch[row] = picture
        return batch

    def shape(self) -> tuple[int, ...]:
        """The shape of the first picture, (H, W, C)."""
        return read_picture(self.folder / self.files[0], self.fit, self.mode).shape


@dataclass(frozen=True)
class PictureContent:
    """Names a folder of pictures: every path and byte size, and the bytes of evenly spaced files.

    Reading all of ImageNet would take hours, so of more than `SAMPLED_FILES` files only that many
    are read: a change of some other file that keeps its size goes unnoticed here.
    """

    reader: PictureReader

    def __call__(self) -> str:
        """Hash the list of files, a sample of their bytes, and how they are fitted."""
        folder, files = self.reader.folder, self.reader.files
        lines = [f"{name} {(folder / name).stat().st_size}" for name in files]
        step = -(-len(files) // SAMPLED_FILES)
        sample = (digest_of((folder / name).read_bytes()) for name in files[::step])
        return digest_of("\n".join(lines), *sample, repr(self.reader.fit), self.reader.mode)


def pictures_by_class(folder: Path, classes: Sequence[str]) -> tuple[list[str], list[int]]:
    """Relative paths and labels of `folder/<class>/**/*`, in a stable order; links are skipped."""
    files: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        if not (folder / name).is_dir():
            continue
        found = sorted(
            path.relative_to(folder).as_posix()
            for path in (folder / name).rglob("*")
            if path.suffix.lower() in EXTENSIONS and path.is_file()
        )
        files += found
        labels += [label] * len(found)
    return files, labels
