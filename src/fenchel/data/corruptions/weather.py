"""Weather: light, fog, frost, snow and splashes between the camera and the scene."""

from __future__ import annotations

import numpy as np

from fenchel.data.corruptions.base import Array, Draws, Images, corruption
from fenchel.data.corruptions.colour import hsv_to_rgb, rgb_to_hsv


@corruption(role="test", cifar=(0.05, 0.1, 0.15, 0.2, 0.3), imagenet=(0.1, 0.2, 0.3, 0.4, 0.5))
def brightness(images: Images, offset: float, draws: Draws) -> Array:
    """Add `offset` to the value of each pixel in hue-saturation-value."""
    intensities = images / 255
    if images.shape[-1] == 1:
        return intensities + offset
    hue, saturation, value = rgb_to_hsv(intensities)
    return hsv_to_rgb(hue, saturation, np.clip(value + offset, 0, 1))
