"""Augmentation of whole batches in torch: uint8 (B, H, W, C) -> float (B, C, H, W) in [0, 1].

Batches stay in the order in which images lie in memory (channels last), so the float tensor that
comes out is already in the memory format in which convolutions are fastest.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fenchel.names import Registry
from fenchel.names import build as build_from_spec


def to_unit_range(images: Tensor) -> Tensor:
    """uint8 (B, H, W, C) -> float (B, C, H, W) in [0, 1], without moving memory."""
    return images.permute(0, 3, 1, 2).float() / 255


@dataclass(frozen=True, kw_only=True)
class Augmentation(ABC):
    """How training images are augmented, and which size of image the model gets."""

    def output_side(self, side: int) -> int:
        """The side of the images that come out, for images of side `side`."""
        return side

    @abstractmethod
    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Random versions of uint8 images (B, H, W, C), as float (B, C, H', W') in [0, 1]."""

    def plain(self, images: Tensor) -> Tensor:
        """The same images without randomness, for evaluation: the centre where training crops."""
        top, left = ((n - self.output_side(n)) // 2 for n in images.shape[1:3])
        height, width = (self.output_side(n) for n in images.shape[1:3])
        return to_unit_range(images[:, top : top + height, left : left + width])


AUGMENTATIONS: Registry[type[Augmentation]] = Registry("augmentation")


def parse(spec: str) -> Augmentation:
    """The augmentation that a string names.

    >>> parse("pad-crop:padding=2,flip=False")
    PadCrop(padding=2, size=None, flip=False)
    """
    return build_from_spec(AUGMENTATIONS, "augmentation", spec)


@dataclass(frozen=True, kw_only=True)
class NoAugmentation(Augmentation):
    """Images as they are."""

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """The images in [0, 1]; the generator is not touched."""
        return to_unit_range(images)


@dataclass(frozen=True, kw_only=True)
class PadCrop(Augmentation):
    """A window at a random place of the image with a black border, mirrored half of the time.

    Args:
        padding: pixels of border on each side.
        size: side of the window; by default that of the image, and never more.
        flip: whether to mirror left and right (not for digits).
    """

    padding: int = 4
    size: int | None = None
    flip: bool = True

    def __post_init__(self) -> None:
        if self.padding < 0 or (self.size is not None and self.size < 1):
            raise ValueError(
                "pad-crop needs padding >= 0 and size >= 1; got "
                f"padding={self.padding}, size={self.size}. Leave size out for the image's own."
            )

    def output_side(self, side: int) -> int:
        """The side of the window."""
        return side if self.size is None else min(self.size, side)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """One gather for the whole batch: the window's rows and columns of every image."""
        border = (0, 0, self.padding, self.padding, self.padding, self.padding)
        padded = functional.pad(images, border)
        rows = self._window(len(images), images.shape[1], generator)
        columns = self._window(len(images), images.shape[2], generator)
        if self.flip:
            columns = torch.where(_coins(len(images), generator), columns.flip(1), columns)
        batch = torch.arange(len(images))[:, None, None]
        places = (batch, rows[:, :, None], columns[:, None, :])
        return to_unit_range(padded[tuple(index.to(images.device) for index in places)])

    def _window(self, count: int, side: int, generator: torch.Generator) -> Tensor:
        """Indices (count, output side) of a window in a padded axis."""
        length = self.output_side(side)
        free = side + 2 * self.padding - length
        start = torch.randint(free + 1, (count, 1), generator=generator)
        return start + torch.arange(length)


@dataclass(frozen=True, kw_only=True)
class ResizedCrop(Augmentation):
    """A window of random area and shape, stretched to the image's size, mirrored half of the time.

    The window covers a share of the area uniform in [smallest, 1], its aspect ratio is log-uniform
    in [3/4, 4/3]; ten windows are drawn and the first that fits is taken, else the whole image.
    Stretching is bilinear with the window's edges repeated.
    """

    smallest: float = 0.2
    flip: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.smallest <= 1:
            raise ValueError(
                f"resized-crop needs 0 < smallest <= 1, a share of the area; got {self.smallest}."
            )

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Two batched matrix products, one for each axis of the image."""
        count, height, width, _ = images.shape
        top, left, tall, wide = self._windows(count, height, width, generator)
        vertical = _stretch(top, tall, height)
        horizontal = _stretch(left, wide, width)
        if self.flip:
            mirror = _coins(count, generator)[:, :, None]
            horizontal = torch.where(mirror, horizontal.flip(1), horizontal)
        vertical, horizontal = vertical.to(images.device), horizontal.to(images.device)
        # Rows first: (B, H', H) @ (B, H, W C); then the columns with the channels kept last.
        stretched = torch.bmm(vertical, images.float().flatten(2)).view(images.shape)
        stretched = torch.einsum("bvw,bhwc->bhvc", horizontal, stretched)
        return stretched.contiguous().permute(0, 3, 1, 2) / 255

    def _windows(
        self, count: int, height: int, width: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Whole pixels (count,): top, left, height and width of each image's window."""
        tries = (count, 10)
        area = torch.rand(tries, generator=generator) * (1 - self.smallest) + self.smallest
        log_ratio = (torch.rand(tries, generator=generator) * 2 - 1) * math.log(4 / 3)
        half = (log_ratio / 2).exp()
        side = (area * height * width).sqrt()
        wide, tall = (side * half).round().long(), (side / half).round().long()
        fits = (wide <= width) & (tall <= height) & (wide > 0) & (tall > 0)
        first = fits.int().argmax(1, keepdim=True)
        found = fits.any(1)
        tall = torch.where(found, tall.gather(1, first)[:, 0], height)
        wide = torch.where(found, wide.gather(1, first)[:, 0], width)
        place = torch.rand((count, 2), generator=generator)
        top = (place[:, 0] * (height - tall + 1)).long()
        left = (place[:, 1] * (width - wide + 1)).long()
        return top, left, tall, wide


def _coins(count: int, generator: torch.Generator) -> Tensor:
    """Fair coins (count, 1)."""
    return torch.rand((count, 1), generator=generator) < 0.5


def _stretch(start: Tensor, length: Tensor, side: int) -> Tensor:
    """Matrices (B, side, side) that stretch pixels start .. start + length to the whole axis."""
    pixel = torch.arange(side)
    scale = length[:, None] / side
    source = ((pixel + 0.5) * scale - 0.5).clamp(min=0).minimum(length[:, None] - 1.0)
    position = source + start[:, None]
    # Linear interpolation: a triangle of width one around each source position.
    return (1 - (position[:, :, None] - pixel).abs()).clamp(min=0)


AUGMENTATIONS.add("none", NoAugmentation)
AUGMENTATIONS.add("pad-crop", PadCrop)
AUGMENTATIONS.add("resized-crop", ResizedCrop)
