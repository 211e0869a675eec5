"""Streaks: the blur of an object, or a snowflake, that moves while the shutter is open."""

from __future__ import annotations

import numpy as np

from fenchel.data.corruptions.base import Array, Images


def streak(images: Images, radius: int, sigma: float, degrees: Array) -> Images:
    """Average each pixel with those before it along a line, one angle per image.

    Step i = 0..2 radius looks i pixels along the angle, to the nearest whole pixel, with weight
    exp(-i^2 / 2 sigma^2): a trail on one side only. Beyond the border the edge is repeated.

    Args:
        images: uint8 (N, H, W, C).
        radius: half the number of steps.
        sigma: how fast the trail fades, in steps.
        degrees: the angle of each image, (N,); 0 points right, 90 down.
    """
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    angles = np.deg2rad(degrees)[:, None]
    down = np.ceil(steps * np.sin(angles) - 0.5).astype(int)
    right = np.ceil(steps * np.cos(angles) - 0.5).astype(int)
    height, width = images.shape[1:3]
    margin = 2 * radius
    padding = ((0, 0), (margin, margin), (margin, margin), (0, 0))
    padded = np.pad(images.astype(np.float64), padding, mode="edge")
    result = np.zeros(images.shape)
    for index, blurred in enumerate(result):
        offsets = zip(weights, margin + down[index], margin + right[index], strict=True)
        for weight, top, left in offsets:
            blurred += weight * padded[index, top : top + height, left : left + width]
    return np.rint(result).astype(np.uint8)
