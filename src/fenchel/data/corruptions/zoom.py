"""Zooming into the centre, as a matrix on the pixels: one product zooms a whole batch."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from scipy import ndimage, sparse

from fenchel.data.corruptions.base import Array

# Large images take several products, so that no matrix outgrows some tens of megabytes.
MATRIX_ENTRIES = 2**21


@lru_cache(maxsize=8)
def zoom_matrix(height: int, width: int, factors: tuple[float, ...]) -> Any:
    """The sum over `factors` of the zooms, a sparse (H W, H W) matrix."""
    return sum(
        sparse.kron(_zoom_axis(height, factor), _zoom_axis(width, factor), format="csr")
        for factor in factors
    )


def _zoom_axis(size: int, factor: float) -> Array:
    """Crop the middle 1/factor, rounded up, enlarge it linearly, and trim what is too much."""
    crop = int(np.ceil(size / factor))
    top = (size - crop) // 2
    enlarged = np.asarray(ndimage.zoom(np.eye(size)[top : top + crop], (factor, 1), order=1))
    trim = (len(enlarged) - size) // 2
    return enlarged[trim : trim + size]


def zoomed_sum(images: Array, factors: tuple[float, ...]) -> Array:
    """The sum of the centre zooms of (N, H, W, C) images by each of `factors`.

    A sparse product adds each pixel's terms in a fixed order, so that, unlike with a dense one,
    the last bits do not depend on the number of images.
    """
    count, height, width, channels = images.shape
    columns = images.transpose(1, 2, 0, 3).reshape(height * width, count * channels)
    columns = np.ascontiguousarray(columns)
    total = np.zeros_like(columns)
    # A pixel is a mean of at most four in each zoom.
    group = max(1, MATRIX_ENTRIES // (4 * height * width))
    for first in range(0, len(factors), group):
        total += zoom_matrix(height, width, factors[first : first + group]) @ columns
    return np.moveaxis(total.reshape(height, width, count, channels), 2, 0)
