"""Splashes of water: how the published spatter turns blots into drops with bright rims.

The outlines of the blots are found (Canny), every pixel's distance to the nearest outline is
measured, and this relief is equalised and embossed. The steps and their roundings are those of the
image library behind the published data.
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from fenchel.data.corruptions.base import Array, Images

EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
SOBEL = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
WEAK_EDGE, STRONG_EDGE = 50, 150
FARTHEST = 20
# Lengths of a step ahead, a diagonal one and a knight's move, in units of 1/65536 pixel.
UNIT = 65536
STEPS = {(0, 1): UNIT, (1, 1): 91750, (1, 2): 143976}
# Neighbours within an image, for stacks of images.
TOUCHING = np.zeros((3, 3, 3), dtype=bool)
TOUCHING[1] = True


def drops(blots: Images) -> Array:
    """The brightness of water in each pixel of the blots (N, H, W), from 0 to 1 at the brightest.

    An image whose blots leave nothing bright (hardly any blot at all) gets no water.
    """
    relief = distance_to(outlines(blots))
    relief = _mean_of_nine(np.minimum(relief, FARTHEST)).astype(np.uint8)
    relief = equalise(relief)
    embossed = ndimage.correlate(relief.astype(np.int32), EMBOSS[None], mode="mirror")
    relief = np.clip(embossed, 0, 255).astype(np.uint8)
    water = blots * np.rint(_mean_of_nine(relief))
    brightest = water.max(axis=(1, 2), keepdims=True)
    return np.asarray(water / np.where(brightest == 0, 1, brightest), dtype=np.float32)


def outlines(blots: Images) -> Array:
    """Canny's edges of (N, H, W): ridges of the gradient, weak ones only where they touch strong.

    A ridge is compared with its two neighbours along the gradient, rounded to a row, a column or
    a diagonal at 22.5 and 67.5 degrees.
    """
    levels = blots.astype(np.int64)
    right = ndimage.correlate(levels, SOBEL[None], mode="nearest")
    down = ndimage.correlate(levels, SOBEL.T[None], mode="nearest")
    slope = np.abs(right) + np.abs(down)
    around = np.pad(slope, ((0, 0), (1, 1), (1, 1)))

    def neighbour(row: int, column: int) -> Array:
        height, width = slope.shape[1:]
        return around[:, 1 + row : 1 + row + height, 1 + column : 1 + column + width]

    # tan(22.5 degrees) in steps of 2**-15; tan(67.5) is larger by two.
    tangent, steepness = np.abs(right) * 13573, np.abs(down) << 15
    along_row = steepness < tangent
    along_column = steepness > tangent + (np.abs(right) << 16)
    falling = (right < 0) == (down < 0)
    ridge = np.select(
        [along_row, along_column, falling],
        [
            (slope > neighbour(0, -1)) & (slope >= neighbour(0, 1)),
            (slope > neighbour(-1, 0)) & (slope >= neighbour(1, 0)),
            (slope > neighbour(-1, -1)) & (slope > neighbour(1, 1)),
        ],
        (slope > neighbour(-1, 1)) & (slope > neighbour(1, -1)),
    )
    parts, count = ndimage.label(ridge & (slope > WEAK_EDGE), structure=TOUCHING)
    strong = np.zeros(count + 1, dtype=bool)
    strong[parts[ridge & (slope > STRONG_EDGE)]] = True
    edges: Array = strong[parts]
    return edges


def distance_to(marked: Array) -> Array:
    """Length of the shortest path to a marked pixel of (N, H, W), at most `FARTHEST`, in pixels.

    Paths are made of straight, diagonal and knight's moves. All pixels look at their sixteen
    neighbours at once, until nothing gets shorter.
    """
    height, width = marked.shape[1:]
    padding = ((0, 0), (2, 2), (2, 2))
    lengths = np.where(marked, 0, FARTHEST * UNIT).astype(np.int32)
    lengths = np.pad(lengths, padding, constant_values=FARTHEST * UNIT)
    inside = lengths[:, 2:-2, 2:-2]
    moves = {
        (row * row_sign, column * column_sign): length
        for (a, b), length in STEPS.items()
        for row, column in ((a, b), (b, a))
        for row_sign in (1, -1)
        for column_sign in (1, -1)
    }
    shortened = True
    while shortened:
        before = inside.copy()
        for (row, column), length in moves.items():
            view = lengths[:, 2 + row : 2 + row + height, 2 + column : 2 + column + width]
            np.minimum(inside, view + length, out=inside)
        shortened = not np.array_equal(before, inside)
    return inside / UNIT


def equalise(levels: Images) -> Images:
    """Spread the levels of each image (N, H, W), at most `FARTHEST`, evenly over 0 to 255."""
    count, pixels = len(levels), levels[0].size
    flat = levels.reshape(count, -1)
    counts = np.stack([(flat == level).sum(axis=1) for level in range(FARTHEST + 1)], axis=1)
    lowest = flat.min(axis=1, keepdims=True)
    rest = pixels - np.take_along_axis(counts, lowest.astype(np.intp), axis=1)
    scale = np.float32(255) / np.maximum(rest, 1).astype(np.float32)
    below = np.cumsum(counts, axis=1) - (pixels - rest)
    table = np.rint(np.maximum(below, 0).astype(np.float32) * scale)
    # With a single level there is nothing to spread.
    table = np.where(rest == 0, lowest, table).astype(np.uint8)
    return np.take_along_axis(table, flat.astype(np.intp), axis=1).reshape(levels.shape)


def _mean_of_nine(levels: Array) -> Array:
    total = levels.astype(np.float64)
    for axis in (1, 2):
        total = ndimage.correlate1d(total, np.ones(3), axis=axis, mode="mirror")
    return (total * (1 / 9)).astype(np.float32)
