"""Warping: reading images at places between their pixels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fenchel.data.corruptions.base import Array

Fold = Callable[[Array, int], Array]


def reflect(index: Array, size: int) -> Array:
    """Indices beyond the border come back, the edge pixel read twice: b a | a b c | c b."""
    wrapped = index % (2 * size)
    return np.asarray(np.minimum(wrapped, 2 * size - 1 - wrapped))


def mirror(index: Array, size: int) -> Array:
    """Indices beyond the border come back, the edge pixel read once: c b | a b c | b a."""
    wrapped = index % (2 * size - 2)
    return np.asarray(np.minimum(wrapped, 2 * size - 2 - wrapped))


def bilinear(images: Array, rows: Array, columns: Array, fold: Fold) -> Array:
    """Images (N, H, W, C) read at fractional places (N, H, W), with `fold` beyond the border."""
    count, height, width, channels = images.shape
    pixels = images.reshape(-1, channels)
    base = np.arange(count).reshape(-1, 1, 1) * (height * width)
    top, left = np.floor(rows), np.floor(columns)
    down = (rows - top)[..., None].astype(images.dtype)
    right = (columns - left)[..., None].astype(images.dtype)
    top, left = top.astype(np.int64), left.astype(np.int64)
    result = np.zeros_like(images)
    for row, row_weight in ((top, 1 - down), (top + 1, down)):
        start = base + fold(row, height) * width
        for column, column_weight in ((left, 1 - right), (left + 1, right)):
            corner = pixels.take(start + fold(column, width), axis=0)
            result += corner * (row_weight * column_weight)
    return result


def affine(images: Array, before: Array, after: Array) -> Array:
    """Images moved so that three points (x, y) `before`, (3, 2), come to lie at `after`, (N, 3, 2).

    Places are rounded to 1/32 of a pixel, as in the library that made the published data.
    """
    height, width = images.shape[1:3]
    edges = np.stack([before[1] - before[0], before[2] - before[0]], axis=-1)
    moved = np.stack([after[:, 1] - after[:, 0], after[:, 2] - after[:, 0]], axis=-1)
    (a, b), (c, d) = (moved[:, 0, 0], moved[:, 0, 1]), (moved[:, 1, 0], moved[:, 1, 1])
    adjugate = np.stack([np.stack([d, -b], axis=-1), np.stack([-c, a], axis=-1)], axis=1)
    # Each place of the result is looked up in the original, so it is the inverse that is needed.
    linear = (edges[None, :, :, None] * adjugate[:, None]).sum(axis=2)
    linear /= (a * d - b * c)[:, None, None]
    shift = before[0] - (linear * after[:, None, 0]).sum(axis=2)
    columns, rows = (
        _fixed_point(linear[:, axis], shift[:, axis], height, width) for axis in (0, 1)
    )
    return bilinear(images, rows, columns, mirror)


def _fixed_point(slope: Array, shift: Array, height: int, width: int) -> Array:
    """slope . (x, y) + shift over the grid, (N, H, W), in steps of 1/32."""
    along = np.rint(slope[:, None, None, 0] * np.arange(width) * 1024)
    down = slope[:, None, None, 1] * np.arange(height)[:, None] + shift[:, None, None]
    return np.asarray(np.floor((along + np.rint(down * 1024) + 16) / 32) / 32)
