"""Images that show nothing, in the midst of a stream: noise among the others, or a sensor that blacks out.

They have no class, so no metric counts them. How a method predicts the images around and after them is
what such a stream tells.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np

from fenchel.data.base import Images, Indices
from fenchel.names import Registry, build, format_spec

NOTHING = -1
"""The index, and the class, of an image that shows nothing."""
_PLACES, _PIXELS = 2, 3  # what random numbers are for; 0 and 1 are those of the orders


@dataclass(frozen=True, kw_only=True)
class Bursts(ABC):
    """Which images of a stream show nothing, and what they look like."""

    name: ClassVar[str]

    @abstractmethod
    def count(self, number: int, batch_size: int) -> int:
        """How many images of a full batch show nothing. In the first batch some image shows something."""

    @abstractmethod
    def images(self, shape: tuple[int, ...], seed: int, number: int) -> Images:
        """Images that show nothing, for one batch: `shape` is (n, H, W, C)."""

    def __str__(self) -> str:
        """The spec, with every option written out."""
        return format_spec(self.name, asdict(self))


@dataclass(frozen=True, kw_only=True)
class NoiseBursts(Bursts):
    """A share of the images of every batch is uniform noise, at random places of the batch.

    >>> [NoiseBursts(share=0.25).count(number, 6) for number in range(4)]
    [1, 2, 1, 2]
    """

    name: ClassVar[str] = "noise"
    share: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(
                f"the share of noise lies between 0 and 1; got {self.share!r}. Write noise:share=0.2."
            )

    def count(self, number: int, batch_size: int) -> int:
        """The share of the batch, rounded such that it holds for the stream at any batch size."""
        rate = self.share * batch_size
        return int(rate * (number + 1) + 1e-9) - int(rate * number + 1e-9)

    def images(self, shape: tuple[int, ...], seed: int, number: int) -> Images:
        """Every value of every pixel is drawn on its own."""
        size = int(np.prod(shape))
        words = _random_words(seed, _PIXELS, number, -(-size // 8))
        return words.astype("<u8").view(np.uint8)[:size].reshape(shape)


@dataclass(frozen=True, kw_only=True)
class BlackOuts(Bursts):
    """After every few batches of images some whole batches are black.

    >>> [BlackOuts(every=3, length=2).count(number, 6) for number in range(8)]
    [0, 0, 0, 6, 6, 0, 0, 0]
    """

    name: ClassVar[str] = "black"
    every: int = 5
    length: int = 2

    def __post_init__(self) -> None:
        for option in ("every", "length"):
            value = getattr(self, option)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(
                    f"black-outs count in whole batches of at least 1; got {option}={value!r}. Write "
                    "black:every=5,length=2."
                )

    def count(self, number: int, batch_size: int) -> int:
        """All of the batch or none of it."""
        return batch_size if number % (self.every + self.length) >= self.every else 0

    def images(self, shape: tuple[int, ...], seed: int, number: int) -> Images:
        """Zeros."""
        return np.zeros(shape, np.uint8)


BURSTS: Registry[type[Bursts]] = Registry("bursts")
for _kind in (NoiseBursts, BlackOuts):
    BURSTS.add(_kind.name, _kind)
DEFAULT_BURSTS = NoiseBursts.name


def parse_bursts(spec: str) -> Bursts:
    """The bursts that a spec names.

    >>> str(parse_bursts("black:length=3"))
    'black:every=5,length=3'
    """
    if not isinstance(spec, str):
        raise TypeError(f"bursts is a text such as 'noise:share=0.2'; got {spec!r}.")
    return build(BURSTS, "bursts", spec)


def among(indices: Indices, blanks: int, seed: int, number: int) -> Indices:
    """The indices of a batch with `blanks` images that show nothing at random places among them."""
    size = len(indices) + blanks
    places = np.argsort(_random_words(seed, _PLACES, number, size), kind="stable")
    found = np.full(size, NOTHING, np.int64)
    found[np.sort(places[blanks:])] = indices
    return found


def _random_words(
    seed: int, purpose: int, number: int, count: int
) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Raw bits of a generator for one batch, which NumPy promises to keep."""
    return np.random.PCG64(np.random.SeedSequence((seed, purpose, number))).random_raw(count)
