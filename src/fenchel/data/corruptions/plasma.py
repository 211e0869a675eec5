"""Plasma: the fractal clouds of the diamond-square algorithm, which make fog."""

from __future__ import annotations

import numpy as np

from fenchel.data.corruptions.base import Array, Draws


def plasma(size: int, decay: float, draws: Draws) -> Array:
    """One cloud per image, (N, size, size), from 0 to 1; `size` is a power of two.

    From a coarse grid to a fine one, each new point is the mean of four neighbours (the map wraps
    around) plus noise, and the noise shrinks by `decay` squared from level to level.
    """
    noise = draws.uniform(-1, 1, (size * size - 1,))
    count = len(noise)
    clouds = np.zeros((count, size, size))
    spread, step, used = 100.0, size, 0
    while step >= 2:
        half, points = step // 2, size // step
        wobble = noise[:, used : used + 3 * points**2].reshape(count, 3, points, points)
        wobble = wobble * spread**2
        corners = clouds[:, ::step, ::step]
        down = corners + np.roll(corners, -1, axis=1)
        middles = (down + np.roll(down, -1, axis=2)) / 4 + wobble[:, 0]
        across = corners + np.roll(corners, -1, axis=2)
        clouds[:, half::step, half::step] = middles
        clouds[:, ::step, half::step] = (
            middles + np.roll(middles, 1, axis=1) + across
        ) / 4 + wobble[:, 1]
        clouds[:, half::step, ::step] = (middles + np.roll(middles, 1, axis=2) + down) / 4 + wobble[
            :, 2
        ]
        used += 3 * points**2
        step, spread = half, spread / decay
    clouds -= clouds.min(axis=(1, 2), keepdims=True)
    clouds /= clouds.max(axis=(1, 2), keepdims=True)
    return clouds
