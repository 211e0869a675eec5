"""AugMix on batches of image tensors: random chains of simple operations, mixed back into the image.

Every image draws its own operations, strengths and weights. All draws come from one CPU generator, so
the views of a batch are the same on every device.

Reference: Hendrycks et al., "AugMix", ICLR 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

WIDTH, MAX_DEPTH, SEVERITY = 3, 3, 3.0

Operation = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(images in [0, 1] of shape (N, C, H, W), levels (N,) in [0, 1], signs (N,)) -> images."""


def augmix(images: Tensor, generator: torch.Generator) -> Tensor:
    """One AugMix view of every image; pixels in [0, 1], shape (N, C, H, W)."""
    count = images.shape[0]
    weights = _dirichlet(count, WIDTH, generator).to(images)
    strength = torch.rand(count, generator=generator, dtype=torch.float64).to(images)
    mixture = torch.zeros_like(images)
    for chain in range(WIDTH):
        mixture += weights[:, chain, None, None, None] * _chain(images, generator)
    strength = strength[:, None, None, None]
    return (1 - strength) * images + strength * mixture


def _chain(images: Tensor, generator: torch.Generator) -> Tensor:
    """One to three random operations, one after the other."""
    count = images.shape[0]
    depth = torch.randint(1, MAX_DEPTH + 1, (count,), generator=generator)
    result = images.clone()
    for step in range(MAX_DEPTH):
        choice = torch.randint(len(OPERATIONS), (count,), generator=generator)
        level = 0.01 + torch.rand(count, generator=generator) * (SEVERITY / 10 - 0.01)
        sign = torch.randint(2, (count,), generator=generator) * 2.0 - 1.0
        for index, operation in enumerate(OPERATIONS):
            rows = ((choice == index) & (step < depth)).nonzero()[:, 0]
            if len(rows):
                there = rows.to(images.device)
                changed = operation(result[there], level[rows].to(images), sign[rows].to(images))
                result[there] = changed
    return result


def _dirichlet(count: int, width: int, generator: torch.Generator) -> Tensor:
    """Uniform weights on the simplex: normalised exponentials."""
    draws = (
        -torch.rand(count, width, generator=generator, dtype=torch.float64).clamp_min(1e-12).log()
    )
    return draws / draws.sum(-1, keepdim=True)


def autocontrast(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Stretch every channel to the full range; a constant channel stays."""
    low, high = images.amin((-2, -1), keepdim=True), images.amax((-2, -1), keepdim=True)
    span = high - low
    return torch.where(span > 0, (images - low) / torch.where(span > 0, span, 1.0), images)


def equalize(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Flatten the histogram of every channel, over 256 levels as Pillow does."""
    pixels = _levels(images).flatten(2)
    histogram = torch.zeros(*pixels.shape[:2], 256, device=images.device, dtype=torch.long)
    histogram.scatter_add_(-1, pixels, torch.ones_like(pixels))
    present = histogram > 0
    positions = torch.arange(256, device=images.device)
    last = torch.where(present, positions, -1).amax(-1, keepdim=True)
    step = (pixels.shape[-1] - histogram.gather(-1, last)) // 255
    before = histogram.cumsum(-1) - histogram
    table = ((step // 2 + before) // step.clamp_min(1)).clamp(0, 255)
    table = torch.where(step > 0, table, positions)
    return (table.gather(-1, pixels).reshape(images.shape) / 255).to(images)


def posterize(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Keep the four highest bits of every pixel, fewer at high levels."""
    bits = 4 - (level * 4).floor()
    size = (2 ** (8 - bits))[:, None, None, None]
    return (_levels(images) / size).floor() * size / 255


def solarize(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Invert the pixels above a threshold that falls with the level."""
    threshold = (1 - level)[:, None, None, None]
    return torch.where(images < threshold, images, 1 - images)


def rotate(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Turn by up to 30 degrees times the level."""
    angle = sign * level * 30 * math.pi / 180
    cosine, sine, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    return affine(images, [[cosine, -sine, zero], [sine, cosine, zero]])


def shear_horizontally(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Slant the columns by up to 0.3 times the level."""
    one, zero = torch.ones_like(level), torch.zeros_like(level)
    return affine(images, [[one, sign * level * 0.3, zero], [zero, one, zero]])


def shear_vertically(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Slant the rows by up to 0.3 times the level."""
    one, zero = torch.ones_like(level), torch.zeros_like(level)
    return affine(images, [[one, zero, zero], [sign * level * 0.3, one, zero]])


def translate_horizontally(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Move sideways by up to a third of the width times the level."""
    one, zero = torch.ones_like(level), torch.zeros_like(level)
    return affine(images, [[one, zero, sign * level * 2 / 3], [zero, one, zero]])


def translate_vertically(images: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Move up or down by up to a third of the height times the level."""
    one, zero = torch.ones_like(level), torch.zeros_like(level)
    return affine(images, [[one, zero, zero], [zero, one, sign * level * 2 / 3]])


OPERATIONS: tuple[Operation, ...] = (
    autocontrast,
    equalize,
    posterize,
    rotate,
    solarize,
    shear_horizontally,
    shear_vertically,
    translate_horizontally,
    translate_vertically,
)


def affine(
    images: Tensor, rows: list[list[Tensor]], outside: Literal["zeros", "border"] = "zeros"
) -> Tensor:
    """Resample bilinearly; `rows` map output to input around the centre, black outside by default.

    The linear part is in pixels, the shift in half widths and half heights.
    """
    theta = torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)
    # affine_grid measures both axes from -1 to 1, whatever their lengths.
    height, width = images.shape[-2:]
    theta[:, 0, 1] *= height / width
    theta[:, 1, 0] *= width / height
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode=outside, align_corners=False)


def _levels(images: Tensor) -> Tensor:
    return (images * 255).round().long()
