"""The nineteen common corruptions, at five severities, for images of any size.

>>> import numpy as np
>>> images = np.full((2, 32, 32, 3), 128, dtype=np.uint8)
>>> corrupt(images, "fog", severity=5).shape
(2, 32, 32, 3)

A new corruption is one function under `@register(kind="corruption", cifar=...)`, in a module of this
package, in a plugin file or behind an entry point of the group `fenchel.corruptions`.
"""

from __future__ import annotations

import importlib
import math
import operator
import pkgutil
from pathlib import Path

import numpy as np

from fenchel.data.corruptions.base import (
    CORRUPTIONS,
    SEVERITIES,
    Corruption,
    Draws,
    Images,
)

__all__ = [
    "CORRUPTIONS",
    "SEVERITIES",
    "TEST_CORRUPTIONS",
    "VALIDATION_CORRUPTIONS",
    "Corruption",
    "Draws",
    "corrupt",
]

TEST_CORRUPTIONS = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
VALIDATION_CORRUPTIONS = ("speckle_noise", "gaussian_blur", "spatter", "saturate")

# Importing a module registers its corruptions; the families of the benchmark come first.
_FAMILIES = ("noise", "blur", "weather", "digital")
_MODULES = [module.name for module in pkgutil.iter_modules(__path__)]
for _module in (*_FAMILIES, *(name for name in _MODULES if name not in _FAMILIES)):
    importlib.import_module(f"{__name__}.{_module}")

SMALLEST_SIDE = 4
# Values of a chunk: large enough to hide Python's overhead, small enough for the caches.
CHUNK_VALUES = 2**19


def corrupt(
    images: Images,
    name: str,
    severity: int,
    *,
    constants: str = "cifar",
    seed: int = 0,
    start: int = 0,
    textures: str | Path | None = None,
) -> Images:
    """Apply the corruption `name` at `severity` (1 to 5) to uint8 images (N, H, W, C), C = 1 or 3.

    Image i of the result depends on its pixels and on (seed, start + i, name, severity) alone, so
    a data set may be corrupted in any batches, order or number of processes: pass the index of the
    first image as `start`.

    Args:
        images: what to corrupt; left untouched.
        name: one of `CORRUPTIONS`.
        severity: from 1, weak, to 5, strong.
        constants: the strengths of CIFAR-10-C ("cifar", meant for about 32 pixels) or those of
            ImageNet-C ("imagenet", meant for about 224).
        seed: another seed gives other noise.
        start: index of the first image in its data set.
        textures: folder with the frost photographs; without it frost uses procedural ones.

    >>> import numpy as np
    >>> images = np.full((4, 32, 32, 3), 100, dtype=np.uint8)
    >>> together = corrupt(images, "gaussian_noise", 3)
    >>> apart = [corrupt(images[i : i + 1], "gaussian_noise", 3, start=i) for i in range(4)]
    >>> bool((together == np.concatenate(apart)).all())
    True
    """
    entry = CORRUPTIONS[name]
    severity = _integer("severity", severity, SEVERITIES[0], SEVERITIES[-1])
    seed, start = _integer("seed", seed), _integer("start", start, 0)
    strength = entry.strength(constants, severity)
    folder = None if textures is None else Path(textures)
    _check_images(images)
    result = np.empty(images.shape, dtype=np.uint8)
    step = max(1, CHUNK_VALUES // images[:1].size) if len(images) else 1
    for first in range(0, len(images), step):
        chunk = np.ascontiguousarray(images[first : first + step])
        draws = Draws(seed, name, severity, range(start + first, start + first + len(chunk)))
        result[first : first + step] = entry.apply(chunk, strength, draws, folder)
    return result


def _integer(what: str, value: int, low: float = -math.inf, high: float = math.inf) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{what} must be a whole number, not {value!r}. Pass an int.")
    number = operator.index(value)
    if not low <= number <= high:
        bounds = f"from {low} to {high}" if high < math.inf else f"of at least {low}"
        raise ValueError(f"{what} must be a whole number {bounds}, not {number}. Choose one.")
    return number


def _check_images(images: Images) -> None:
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        got = f"{type(images).__module__}.{type(images).__qualname__}"
        kind = f" of {images.dtype}" if hasattr(images, "dtype") else ""
        raise TypeError(
            f"images must be a numpy.ndarray of uint8, values from 0 to 255, not {got}{kind}. "
            "Convert them first, for example (x * 255).astype(numpy.uint8) for x in [0, 1]."
        )
    if images.ndim != 4 or images.shape[-1] not in (1, 3):
        raise ValueError(
            "images must have the shape (N, height, width, channels) with 1 or 3 channels, not "
            f"{images.shape}. Add the missing axis with images[None] (one image) or "
            "images[..., None] (grey images), or move the channels last."
        )
    if min(images.shape[1:3]) < SMALLEST_SIDE:
        raise ValueError(
            f"images must be at least {SMALLEST_SIDE} pixels high and wide, not "
            f"{images.shape[1]} x {images.shape[2]}. Enlarge them first."
        )
