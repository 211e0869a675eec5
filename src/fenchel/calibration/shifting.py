"""Shifts to choose settings on. None is one of the fifteen corruptions that tables are judged on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fenchel.data.corruptions import SEVERITIES, VALIDATION_CORRUPTIONS, corrupt
from fenchel.objectives.augmix import posterize, rotate
from fenchel.objectives.pixels import KnowsPixels

LARGE = 96
"""Images from this side on are corrupted with the strengths meant for 224 pixels, smaller ones with those
for 32."""

SHIFTS = (*VALIDATION_CORRUPTIONS, "rotation", "posterized")
"""For images of one or three channels: four common corruptions at their strongest, a geometric change, and
fewer shades."""
PLAIN_SHIFTS = ("noise", "gains", "offsets")
"""For samples of any other kind."""


@dataclass(frozen=True, kw_only=True)
class Pixels(KnowsPixels):
    """The range of the images that a model takes."""


@dataclass(frozen=True)
class Shifting:
    """Makes shifted copies of source samples, and says which kinds of shift there are.

    pixels: the range of images; None for samples that are no images.
    """

    pixels: Pixels | None

    @staticmethod
    def of(
        samples: Tensor,
        *,
        input_range: tuple[float, float] | None = None,
        mean: tuple[float, ...] | None = None,
        std: tuple[float, ...] | None = None,
    ) -> Shifting:
        """How samples like these are shifted. Images whose range is not known are refused."""
        if samples.ndim != 4 or samples.shape[1] not in (1, 3):
            return Shifting(None)
        if input_range is None and mean is None:
            low, high = float(samples.min()), float(samples.max())
            if low < 0 or high > 1:
                raise ValueError(
                    "images are shifted as pixels between black and white, so their range must be known; "
                    f"these lie between {low:.3g} and {high:.3g}. Pass input_range=(low, high), or mean= and "
                    "std= if images in [0, 1] were normalised by them."
                )
            input_range = (0.0, 1.0)
        return Shifting(Pixels(input_range=input_range, mean=mean, std=std))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The shifts that suit these samples."""
        return PLAIN_SHIFTS if self.pixels is None else SHIFTS

    def shifted(self, samples: Tensor, kind: str, seed: int) -> Tensor:
        """The samples under a shift; another seed draws other noise."""
        if self.pixels is None:
            return _plainly(samples, kind, seed)
        return self.pixels.changed(samples, _of_pixels(kind, seed))


def _of_pixels(kind: str, seed: int) -> Callable[[Tensor], Tensor]:
    if kind in VALIDATION_CORRUPTIONS:
        return lambda pixels: _corrupted(pixels, kind, seed)
    generator = torch.Generator().manual_seed(seed)

    def drawn(pixels: Tensor) -> Tensor:
        level = 0.7 + 0.3 * torch.rand(len(pixels), generator=generator)
        sign = torch.randint(2, (len(pixels),), generator=generator) * 2.0 - 1.0
        operation = rotate if kind == "rotation" else posterize
        return operation(pixels, level.to(pixels), sign.to(pixels))

    return drawn


def _corrupted(pixels: Tensor, kind: str, seed: int) -> Tensor:
    array = (pixels.permute(0, 2, 3, 1).double().cpu().numpy() * 255).round().astype(np.uint8)
    constants = "imagenet" if min(array.shape[1:3]) >= LARGE else "cifar"
    made = corrupt(array, kind, SEVERITIES[-1], constants=constants, seed=seed)
    return (torch.from_numpy(made).permute(0, 3, 1, 2).double() / 255).to(pixels)


def _plainly(samples: Tensor, kind: str, seed: int) -> Tensor:
    """Noise, gains and offsets of about the spread of every feature."""
    generator = torch.Generator().manual_seed(seed)
    spread = samples.double().std(0, correction=0)
    if kind == "noise":
        drawn = torch.randn(samples.shape, generator=generator, dtype=torch.float64)
        return (samples.double() + 0.5 * spread * drawn.to(samples.device)).to(samples)
    # One gain and one offset per feature for the whole stream: what a sensor does.
    fixed = torch.Generator().manual_seed(0)
    drawn = torch.randn(samples.shape[1:], generator=fixed, dtype=torch.float64).to(samples.device)
    if kind == "gains":
        return (samples.double() * (0.3 * drawn).exp()).to(samples)
    return (samples.double() + 0.5 * spread * drawn).to(samples)
