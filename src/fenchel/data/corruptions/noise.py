"""Noise: every value of every channel on its own."""

from __future__ import annotations

import numpy as np

from fenchel.data.corruptions.base import Array, Draws, Images
from fenchel.names import register


@register(
    kind="corruption", cifar=(0.04, 0.06, 0.08, 0.09, 0.10), imagenet=(0.08, 0.12, 0.18, 0.26, 0.38)
)
def gaussian_noise(images: Images, scale: float, draws: Draws) -> Array:
    """Add Gaussian noise of standard deviation `scale`."""
    return images / 255 + draws.normal(0, scale, images.shape[1:])


@register(kind="corruption", cifar=(500, 250, 100, 75, 50), imagenet=(60, 25, 12, 5, 3))
def shot_noise(images: Images, photons: float, draws: Draws) -> Array:
    """Count photons: Poisson(x * photons) / photons."""
    return draws.poisson(images / 255 * photons) / photons


@register(
    kind="corruption", cifar=(0.01, 0.02, 0.03, 0.05, 0.07), imagenet=(0.03, 0.06, 0.09, 0.17, 0.27)
)
def impulse_noise(images: Images, amount: float, draws: Draws) -> Array:
    """Turn a share `amount` of the values black or white, with even odds (salt and pepper)."""
    chance = draws.uniform(0, 1, images.shape[1:])
    salted = np.where(chance < amount / 2, np.uint8(255), images)
    return np.where((chance >= amount / 2) & (chance < amount), np.uint8(0), salted)


@register(
    kind="corruption",
    cifar=(0.06, 0.1, 0.12, 0.16, 0.2),
    imagenet=(0.15, 0.2, 0.35, 0.45, 0.6),
)
def speckle_noise(images: Images, scale: float, draws: Draws) -> Array:
    """Add Gaussian noise in proportion to the intensity: x + x N(0, scale)."""
    intensities = images / 255
    return intensities + intensities * draws.normal(0, scale, images.shape[1:])
