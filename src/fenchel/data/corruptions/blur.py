"""Blur: lenses, glass and movement."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from fenchel.data.corruptions.base import Array, Draws, Images, corruption


def smooth(intensities: Array, sigma: float) -> Array:
    """Gaussian blur of (N, H, W, C) within each image, edges repeated, cut off at 4 sigma."""
    return np.asarray(ndimage.gaussian_filter(intensities, (0, sigma, sigma, 0), mode="nearest"))


@corruption(role="validation", cifar=(0.4, 0.6, 0.7, 0.8, 1), imagenet=(1, 2, 3, 4, 6))
def gaussian_blur(images: Images, sigma: float, draws: Draws) -> Array:
    """Average with Gaussian weights of standard deviation `sigma` pixels."""
    return smooth(images / 255, sigma)
