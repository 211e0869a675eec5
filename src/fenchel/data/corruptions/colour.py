"""Hue, saturation and value, and the two notions of grey that the corruptions need."""

from __future__ import annotations

import numpy as np

from fenchel.data.corruptions.base import Array

# ITU-R BT.601: how bright the eye finds red, green and blue.
LUMA = (0.299, 0.587, 0.114)


def luma(images: Array) -> Array:
    """Brightness (..., 1) of RGB (..., 3); a single channel is its own brightness."""
    if images.shape[-1] == 1:
        return images
    red, green, blue = np.moveaxis(images, -1, 0)
    grey: Array = LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue
    return grey[..., None]


def with_channels(colour: Array, channels: int) -> Array:
    """An RGB overlay (..., 3) for images with `channels` channels: its brightness if one."""
    return colour if channels == 3 else luma(colour)


def rgb_to_hsv(rgb: Array) -> tuple[Array, Array, Array]:
    """Hue, saturation and value in [0, 1] of intensities (..., 3)."""
    red, green, blue = np.moveaxis(rgb, -1, 0)
    value = rgb.max(axis=-1)
    spread = value - rgb.min(axis=-1)
    safe_spread = np.where(spread == 0, 1, spread)
    saturation = np.where(spread == 0, 0, spread / np.where(value == 0, 1, value))
    # Among equal channels the later one decides the hue.
    sixths = np.where(
        blue == value,
        4 + (red - green) / safe_spread,
        np.where(green == value, 2 + (blue - red) / safe_spread, (green - blue) / safe_spread),
    )
    hue = np.where(spread == 0, 0, (sixths / 6) % 1)
    return hue, saturation, value


def hsv_to_rgb(hue: Array, saturation: Array, value: Array) -> Array:
    """The inverse of `rgb_to_hsv`: intensities (..., 3)."""
    sector = np.floor(hue * 6)
    fraction = hue * 6 - sector
    low = value * (1 - saturation)
    falling = value * (1 - fraction * saturation)
    rising = value * (1 - (1 - fraction) * saturation)
    sector = sector.astype(np.uint8) % 6
    red = np.choose(sector, (value, falling, low, low, rising, value))
    green = np.choose(sector, (rising, value, value, falling, low, low))
    blue = np.choose(sector, (low, low, rising, value, value, falling))
    return np.stack([red, green, blue], axis=-1)
