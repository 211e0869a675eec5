"""Frost on a window: photographs from a folder, or crystals grown by ourselves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from scipy import ndimage

from fenchel.data.corruptions.base import Array, Images

# The published data use the first five of six photographs.
COUNT = 5
SUFFIXES = (".png", ".jpg", ".jpeg")


@lru_cache(maxsize=8)
def frost_textures(folder: Path | None, stride: int, height: int, width: int) -> tuple[Images, ...]:
    """Five RGB textures, every `stride`-th pixel of each, larger than (height, width)."""
    originals = grown_textures() if folder is None else read_textures(folder)
    middle = stride // 2
    return tuple(
        _at_least(texture[middle::stride, middle::stride], height + 1, width + 1)
        for texture in originals
    )


def read_textures(folder: Path) -> tuple[Images, ...]:
    """The first five images of `folder`, or of a folder `frost` in it, by name, as RGB."""
    if not folder.is_dir():
        raise ValueError(
            f"textures must name a folder of frost photographs; {str(folder)!r} is no folder. "
            "Correct the path, or leave textures out to use procedural frost."
        )
    inner = folder / "frost"
    places = (inner if inner.is_dir() else folder).iterdir()
    files = sorted(file for file in places if file.suffix.lower() in SUFFIXES)
    if len(files) < COUNT:
        raise ValueError(
            f"a folder of frost textures holds at least {COUNT} PNG or JPEG images; "
            f"{str(folder)!r} holds {len(files)}. Add the missing ones (the published set is "
            "frost1.png to frost6.jpg), or leave textures out to use procedural frost."
        )
    return tuple(_read(file) for file in files[:COUNT])


def _read(file: Path) -> Images:
    try:
        with Image.open(file) as picture:
            return np.asarray(picture.convert("RGB"))
    except (OSError, SyntaxError) as error:
        raise ValueError(
            f"a frost texture must be a readable image; {str(file)!r} is not: {error}. "
            "Replace the file."
        ) from error


def _at_least(texture: Images, height: int, width: int) -> Images:
    factor = max(height / texture.shape[0], width / texture.shape[1])
    if factor <= 1:
        return texture
    size = (math.ceil(texture.shape[1] * factor), math.ceil(texture.shape[0] * factor))
    return np.asarray(Image.fromarray(texture).resize(size, Image.Resampling.BILINEAR))


@dataclass(frozen=True, kw_only=True)
class Frost:
    """How a texture looks: its colours, how much each varies, and the shape of its crystals.

    `levels` are the brightness at the shares `SHARES` of its pixels, so that mean, contrast and
    coverage are those of a photograph whatever the crystals.
    """

    size: tuple[int, int]
    tint: tuple[float, float, float]
    levels: tuple[float, ...]
    needles: int
    length: float
    drift: tuple[float, float, float] = (0, 0, 0)


SHARES = (0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1)
_PALE = (100, 140, 165, 193, 208, 220, 235, 244, 252)
# The measures of the published photographs: colour against brightness, and brightness levels.
FROSTS = (
    Frost(
        size=(600, 900),
        tint=(-52, 19, 36),
        levels=(82, 95, 102, 116, 128, 141, 163, 177, 215),
        needles=9000,
        length=14,
        drift=(15, -4, -5),
    ),
    Frost(size=(315, 560), tint=(-4.1, 0.5, 9.6), levels=_PALE, needles=3000, length=40),
    Frost(size=(315, 560), tint=(-4.1, 0.5, 9.6), levels=_PALE, needles=5000, length=24),
    Frost(
        size=(350, 527),
        tint=(-12, 3, 15),
        levels=(35, 81, 102, 132, 150, 167, 196, 231, 252),
        needles=6000,
        length=12,
    ),
    Frost(
        size=(495, 660),
        tint=(-9, 2, 13),
        levels=(18, 43, 58, 89, 117, 149, 202, 237, 254),
        needles=5000,
        length=30,
    ),
)


@lru_cache(maxsize=1)
def grown_textures() -> tuple[Images, ...]:
    """The five procedural textures, always the same."""
    generators = (np.random.Generator(np.random.Philox(key=key)) for key in range(len(FROSTS)))
    return tuple(map(grow, FROSTS, generators))


def grow(frost: Frost, generator: np.random.Generator) -> Images:
    """Crystal needles in tufts over broad clouds of light, then the levels of a photograph."""
    relief = 0.7 * _standard(_tufts(frost, generator)) + 0.72 * _clouds(frost.size, generator)
    ranks = relief.ravel().argsort().argsort() / (relief.size - 1)
    grey = np.interp(ranks, SHARES, frost.levels).reshape(frost.size)
    drift = _clouds(frost.size, generator)[..., None] * np.array(frost.drift)
    coloured: Array = np.clip(grey[..., None] + np.array(frost.tint) + drift, 0, 255)
    return coloured.astype(np.uint8)


def _tufts(frost: Frost, generator: np.random.Generator) -> Array:
    """Needles that leave common roots in similar directions, later ones over earlier ones."""
    height, width = frost.size
    canvas = Image.new("F", (width, height))
    pen = ImageDraw.Draw(canvas)
    tuft = 12
    for _ in range(frost.needles // tuft):
        root = generator.uniform((0, 0), (width, height))
        heading = generator.uniform(0, 2 * math.pi)
        for angle in generator.normal(heading, 0.5, tuft):
            tip = root + generator.exponential(frost.length) * np.array(
                [math.cos(angle), math.sin(angle)]
            )
            pen.line((*root, *tip), fill=generator.normal(), width=int(generator.integers(1, 4)))
    return np.asarray(ndimage.gaussian_filter(np.asarray(canvas), 0.8))


def _clouds(size: tuple[int, int], generator: np.random.Generator) -> Array:
    """Smooth noise of several sizes, the largest about a third of the texture."""
    height, width = size
    total = np.zeros(size)
    for cells in (3, 6, 12):
        noise = Image.fromarray(generator.standard_normal((cells, cells * width // height)))
        total += np.asarray(noise.resize((width, height), Image.Resampling.BICUBIC)) / cells
    return _standard(total)


def _standard(relief: Array) -> Array:
    return np.asarray((relief - relief.mean()) / relief.std())
