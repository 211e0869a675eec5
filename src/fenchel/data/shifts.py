"""Data sets made of others, lazily: corrupted on the fly, or brought to the size of digits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from fenchel.data.base import Dataset, Images, Indices, Reader
from fenchel.data.corruptions import CHUNK_VALUES, CORRUPTIONS, SEVERITIES, Draws
from fenchel.files import digest_of
from fenchel.names import unknown

LARGEST_CIFAR_SIDE = 64
SOURCES = ("auto", "files", "generated")
CORRUPTED_OPTIONS = {
    "corruption": "which of the 19",
    "severity": "1 to 5 (default 5)",
    "source": "files, generated on the fly, or auto: files where there are any",
    "seed": "seed of the generated noise (default 0)",
    "textures": "folder of the original frost textures, for generated frost",
}
"""What data sets understand that exist as files of corrupted images, or are made as they are read."""
AS_DIGITS_OPTION = {"digits": "True for 28 x 28 with three channels (see as_digits)"}


def constants_for(shape: tuple[int, ...]) -> str:
    """The set of corruption constants meant for images of this shape."""
    return "cifar" if min(shape[:2]) <= LARGEST_CIFAR_SIDE else "imagenet"


def check_corruption(name: str, corruption: str | None, severity: int, source: str) -> str:
    """The corruption that is asked of the data set `name`; ValueError unless all three make sense."""
    if corruption is None:
        raise ValueError(
            f"{name} needs the name of a corruption; none was given. "
            f"Write for example {name}:corruption=fog,severity=5."
        )
    if corruption not in CORRUPTIONS:
        raise unknown("corruption", corruption, CORRUPTIONS)
    if severity not in SEVERITIES:
        raise ValueError(f"severity must be 1 to 5; got {severity!r}.")
    if source not in SOURCES:
        raise unknown(f"source of {name}", source, SOURCES)
    return corruption


@dataclass(frozen=True)
class CorruptingReader:
    """Reads and corrupts a batch; an image gets the same noise in whatever batch it is read."""

    reader: Reader = field(repr=False)
    corruption: str
    severity: int
    constants: str
    seed: int
    textures: Path | None

    def __call__(self, indices: Indices) -> Images:
        """The corrupted images, equal to `corrupt` over the whole set at those rows."""
        images: Images = self.reader(indices)
        entry = CORRUPTIONS[self.corruption]
        strength = entry.strength(self.constants, self.severity)
        step = max(1, CHUNK_VALUES // images[:1].size) if len(images) else 1
        for begin in range(0, len(images), step):
            chunk = slice(begin, begin + step)
            draws = Draws(self.seed, self.corruption, self.severity, indices[chunk].tolist())
            images[chunk] = entry.apply(images[chunk], strength, draws, self.textures)
        return images


@dataclass(frozen=True)
class DerivedContent:
    """The content hash of a data set made from another one by a rule."""

    base: Callable[[], str] = field(repr=False)
    rule: str

    def __call__(self) -> str:
        """Hash the base's content and the rule."""
        return digest_of(self.base(), self.rule)


def corrupted(
    dataset: Dataset,
    corruption: str,
    severity: int,
    *,
    constants: str | None = None,
    seed: int = 0,
    textures: str | Path | None = None,
) -> Dataset:
    """`dataset` under a corruption at severity 1 to 5, applied batch by batch as it is read.

    Severity 0 is the clean data set. `constants` is chosen by the image size unless given:
    "cifar" up to 64 pixels, "imagenet" above.

    >>> import numpy as np
    >>> from fenchel.data import from_arrays
    >>> clean = from_arrays("tiny", np.full((4, 32, 32, 3), 90, np.uint8), np.arange(4))
    >>> len(np.unique(corrupted(clean, "fog", 5).images([2]))) > 10
    True
    """
    if not dataset.is_images:
        raise TypeError(f"corruptions need images; {dataset.name} has inputs of {dataset.shape}.")
    if severity == 0:
        return dataset
    entry = CORRUPTIONS[corruption]
    if isinstance(severity, bool) or severity not in SEVERITIES:
        raise ValueError(f"severity must be 0 (clean) or 1 to 5; got {severity!r}.")
    constants = constants_for(dataset.shape) if constants is None else constants
    entry.strength(constants, severity)
    folder = None if textures is None else Path(textures)
    frost = f", textures {textures_mark(folder)}" if entry.textured else ""
    rule = f"{corruption} {severity}, {constants} constants, seed {seed}{frost}"
    return replace(
        dataset,
        reader=CorruptingReader(dataset.reader, corruption, severity, constants, seed, folder),
        content=DerivedContent(dataset.content, rule),
        origin=f"generated from {dataset.name} {dataset.split}: {rule}",
    )


def textures_mark(textures: Path | None) -> str:
    """Names a folder of textures by its files and their sizes."""
    if textures is None:
        return "procedural"
    files = sorted(path for path in textures.iterdir() if path.is_file())
    return digest_of(*(f"{path.name} {path.stat().st_size}" for path in files))[:8]


@dataclass(frozen=True)
class DigitReader:
    """Images as three channels of size x size: larger ones lose their border, smaller ones grow."""

    reader: Reader = field(repr=False)
    size: int

    def __call__(self, indices: Indices) -> Images:
        """uint8 (n, size, size, 3)."""
        images: Images = self.reader(indices)
        height, width = images.shape[1:3]
        if height >= self.size and width >= self.size:
            top, left = (height - self.size) // 2, (width - self.size) // 2
            images = images[:, top : top + self.size, left : left + self.size]
        elif len(images):
            images = np.stack([self._enlarged(image) for image in images])
        else:
            images = np.zeros((0, self.size, self.size, images.shape[-1]), np.uint8)
        return np.ascontiguousarray(np.broadcast_to(images, (*images.shape[:3], 3)))

    def _enlarged(self, image: Images) -> npt.NDArray[np.uint8]:
        picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
        pixels = np.asarray(picture.resize((self.size, self.size), Image.Resampling.BILINEAR))
        return pixels if pixels.ndim == 3 else pixels[..., None]


def as_digits(dataset: Dataset, size: int = 28) -> Dataset:
    """Digits of any origin in one form, size x size with three channels.

    SVHN and MNIST-M (32 pixels) lose a border of two pixels, USPS (16) and scikit-learn's digits
    (8) are enlarged bilinearly, one channel is repeated to three.
    """
    if not dataset.is_images:
        raise TypeError(f"as_digits needs images; {dataset.name} has inputs of {dataset.shape}.")
    if size < 1:
        raise ValueError(f"size must be at least 1 pixel; got {size}.")
    if dataset.shape == (size, size, 3):
        return dataset
    return replace(
        dataset,
        shape=(size, size, 3),
        reader=DigitReader(dataset.reader, size),
        content=DerivedContent(dataset.content, f"as digits of {size}"),
        origin=f"{dataset.origin}, as {size} x {size} x 3",
    )
