"""What every corruption shares: its record in the registry, its draws, and its last rounding."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fenchel.names import Registry, unknown

Images: TypeAlias = npt.NDArray[np.uint8]
Array: TypeAlias = npt.NDArray[Any]

SEVERITIES = (1, 2, 3, 4, 5)


class Draws:
    """Random numbers with a generator of its own for each image.

    The generator is keyed by (seed, corruption, severity, image index), so what an image receives
    cannot depend on the batch it came in. Every method returns an array whose first axis is the
    image.

    >>> together = Draws(0, "fog", 3, range(2)).uniform(0, 1, (4,))
    >>> alone = Draws(0, "fog", 3, [1]).uniform(0, 1, (4,))
    >>> bool((together[1] == alone[0]).all())
    True
    """

    def __init__(self, seed: int, name: str, severity: int, indices: Sequence[int]) -> None:
        self._generators = [_generator(f"{seed}/{name}/{severity}/{index}") for index in indices]

    def normal(self, mean: float, scale: float, shape: tuple[int, ...]) -> Array:
        """Gaussian numbers, (N, *shape)."""
        standard = np.empty((len(self._generators), *shape))
        for generator, row in zip(self._generators, standard, strict=True):
            generator.standard_normal(out=row)
        return mean + scale * standard

    def uniform(self, low: float, high: float, shape: tuple[int, ...] = ()) -> Array:
        """Numbers spread evenly over [low, high), (N, *shape)."""
        return np.array([g.uniform(low, high, shape) for g in self._generators])

    def integers(self, low: int, high: int, shape: tuple[int, ...] = ()) -> Array:
        """Whole numbers from low to high - 1, (N, *shape)."""
        return np.array([g.integers(low, high, shape) for g in self._generators])

    def poisson(self, rates: Array) -> Array:
        """Counts with the rates given, (N, ...) like `rates`."""
        pairs = zip(self._generators, rates, strict=True)
        return np.array([generator.poisson(rate) for generator, rate in pairs])


def _generator(label: str) -> np.random.Generator:
    digest = hashlib.blake2b(label.encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


@dataclass(frozen=True, kw_only=True)
class Corruption:
    """A corruption: its function, and what it is given at each severity.

    The function maps `(images, strength, draws)` to new images, with `textures` as a fourth
    argument if `textured`. It returns uint8 images, or floats that stand for intensities between 0
    and 1: those are clipped and rounded down, as the published data were.
    """

    name: str
    constants: Mapping[str, Sequence[Any]]
    function: Callable[..., Array]
    textured: bool = False

    @property
    def family(self) -> str:
        """The module that defines it: noise, blur, weather or digital."""
        return self.function.__module__.rpartition(".")[2]

    @property
    def summary(self) -> str:
        """The first line of its description."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    def strength(self, constants: str, severity: int) -> Any:
        """What the function is given at `severity` under the named set of constants."""
        if constants not in self.constants:
            raise unknown("set of constants", constants, self.constants)
        return self.constants[constants][severity - 1]

    def apply(self, images: Images, strength: Any, draws: Draws, textures: Path | None) -> Images:
        """Corrupt uint8 images (N, H, W, C) that all fit in memory at once."""
        extra = (textures,) if self.textured else ()
        return to_bytes(self.function(images, strength, draws, *extra))


def to_bytes(images: Array) -> Images:
    """Intensities in [0, 1] as bytes, clipped and rounded down; bytes are left alone."""
    if images.dtype == np.uint8:
        return images
    return (np.clip(images, 0, 1) * 255).astype(np.uint8)


def _entry(
    name: str,
    function: Callable[..., Array] | Corruption,
    *,
    cifar: Sequence[Any] = (),
    imagenet: Sequence[Any] | None = None,
    textured: bool = False,
) -> Corruption:
    """A function with its strengths at severities 1 to 5; without those for ImageNet, CIFAR's serve."""
    if isinstance(function, Corruption):
        return function
    constants = {"cifar": cifar, "imagenet": cifar if imagenet is None else imagenet}
    for label, values in constants.items():
        if len(values) != len(SEVERITIES):
            raise ValueError(
                f"a corruption needs constants for {len(SEVERITIES)} severities; {name!r} has "
                f"{len(values)} under {label!r}. Give one entry per severity."
            )
    return Corruption(name=name, constants=constants, function=function, textured=textured)


CORRUPTIONS: Registry[Corruption] = Registry(
    "corruption", group="fenchel.corruptions", adopt=_entry
)
