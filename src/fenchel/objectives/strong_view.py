"""A strong view of every image: other colours, a little turned, moved and scaled, perhaps mirrored.

Teachers and students of the field's methods are compared on such views. Every image draws its own
changes; all draws come from one CPU generator, so the views are the same on every device.

Reference: Wang et al., "Continual Test-Time Domain Adaptation", CVPR 2022, whose ranges these are.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel.objectives.augmix import affine

BRIGHTNESS, CONTRAST, SATURATION, GAMMA = (0.6, 1.4), (0.7, 1.3), (0.5, 1.5), (0.7, 1.3)
DEGREES, SHIFT, SCALE = 15.0, 1 / 16, (0.9, 1.1)
NOISE = 0.005
LUMA = (0.299, 0.587, 0.114)
"""What red, green and blue add to the brightness of a pixel."""


def strong_view(images: Tensor, generator: torch.Generator) -> Tensor:
    """One strong view of every image; pixels in [0, 1], shape (N, C, H, W)."""
    count = images.shape[0]

    def draw(low: float, high: float) -> Tensor:
        uniform = torch.rand(count, generator=generator, dtype=torch.float64)
        return (low + (high - low) * uniform).to(images)[:, None, None, None]

    view = (images * draw(*BRIGHTNESS)).clamp(0, 1)
    view = _blended(view, view.mean((1, 2, 3), keepdim=True), draw(*CONTRAST))
    view = _blended(view, _gray(view), draw(*SATURATION))
    view = view.pow(draw(*GAMMA))
    angle = draw(-DEGREES, DEGREES).flatten() * math.pi / 180
    right, down = (draw(-2 * SHIFT, 2 * SHIFT).flatten() for _ in range(2))  # in half widths
    zoom = 1 / draw(*SCALE).flatten()
    cosine, sine = zoom * angle.cos(), zoom * angle.sin()
    view = affine(view, [[cosine, -sine, right], [sine, cosine, down]], outside="border")
    mirrored = draw(0, 1) < 0.5
    view = torch.where(mirrored, view.flip(-1), view)
    noise = torch.randn(images.shape, generator=generator, dtype=torch.float64).to(images)
    return (view + NOISE * noise).clamp(0, 1)


def _blended(images: Tensor, others: Tensor, weight: Tensor) -> Tensor:
    """Away from (weight above 1) or towards others, as far as pixels go."""
    return (others + weight * (images - others)).clamp(0, 1)


def _gray(images: Tensor) -> Tensor:
    if images.shape[1] != len(LUMA):
        return images.mean(1, keepdim=True)
    weights = torch.tensor(LUMA).to(images)[:, None, None]
    return (weights * images).sum(1, keepdim=True)
