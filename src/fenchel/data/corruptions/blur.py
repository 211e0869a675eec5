"""Blur: lenses, glass and movement."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from fenchel.data.corruptions.base import Array, Draws, Images
from fenchel.data.corruptions.motion import streak
from fenchel.data.corruptions.zoom import zoomed_sum
from fenchel.names import register


@register(
    kind="corruption",
    cifar=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    imagenet=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
)
def defocus_blur(images: Images, strength: tuple[float, float], draws: Draws) -> Array:
    """Average over a disk with a slightly softened rim: a lens out of focus."""
    kernel = disk(*strength).astype(np.float64)
    return np.asarray(ndimage.correlate(images / 255, kernel[None, :, :, None], mode="mirror"))


def disk(radius: float, softness: float) -> Array:
    """A disk that sums to one, blurred by three or five pixels of a Gaussian of width `softness`.

    Disks of radius 8 and more fill their frame, so that the blur, mirrored there, adds about one
    per cent to the sum: the published images are brighter by as much.
    """
    reach, taps = (8, 1) if radius <= 8 else (int(radius), 2)
    across = np.arange(-reach, reach + 1)
    inside = (across[:, None] ** 2 + across**2 <= radius**2).astype(np.float64)
    weights = np.exp(-(np.arange(-taps, taps + 1) ** 2) / (2 * softness**2))
    weights /= weights.sum()
    softened: Array = inside / inside.sum()
    for axis in (0, 1):
        softened = ndimage.correlate1d(softened, weights, axis=axis, mode="mirror")
    # The published kernel is in single precision, and its rounding decides flat regions.
    return softened.astype(np.float32)


@register(
    kind="corruption",
    cifar=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    imagenet=((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
)
def glass_blur(images: Images, strength: tuple[float, int, int], draws: Draws) -> Array:
    """Blur, copy pixels from random places nearby, blur: a view through frosted glass."""
    sigma, reach, iterations = strength
    blurred = (smooth(images / 255, sigma) * 255).astype(np.uint8)
    height, width = images.shape[1:3]
    shape = (max(0, height - 2 * reach), max(0, width - 2 * reach), 2)
    for _ in range(iterations):
        blurred = copy_from_nearby(blurred, reach, draws.integers(-reach, reach, shape))
    return smooth(blurred / 255, sigma)


def copy_from_nearby(images: Images, reach: int, offsets: Array) -> Images:
    """Every inner pixel, from the lower right, becomes the one `offsets` away from it.

    It is a copy where a swap was meant: the published data are made so. A pixel may copy from one
    that was itself replaced before, so the copies form chains. Their ends are found for all pixels
    at once, by following twice as many links in every pass.

    Args:
        images: (N, H, W, C).
        reach: offsets lie in [-reach, reach); pixels closer to the border stay.
        offsets: (rows, columns) for the inner pixels, (N, H - 2 reach, W - 2 reach, 2).
    """
    count, height, width, channels = images.shape
    inner = (slice(None), slice(reach + 1, height - reach + 1), slice(reach + 1, width - reach + 1))
    places = np.broadcast_to(np.arange(height * width).reshape(height, width), images.shape[:3])
    replaced = np.zeros(images.shape[:3], dtype=bool)
    replaced[inner] = True
    source = places.copy()
    source[inner] += offsets[..., 0] * width + offsets[..., 1]
    source = source.reshape(count, -1)
    # The scan runs backwards, so only a source further on has been replaced before it is read.
    chained = np.take_along_axis(replaced.reshape(count, -1), source, axis=1)
    chained &= source > places.reshape(count, -1)
    while chained.any():
        onward = np.take_along_axis(source, source, axis=1)
        still = np.take_along_axis(chained, source, axis=1)
        source = np.where(chained, onward, source)
        chained &= still
    pixels = images.reshape(count, -1, channels)
    return np.take_along_axis(pixels, source[..., None], axis=1).reshape(images.shape)


@register(
    kind="corruption",
    cifar=((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    imagenet=((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
)
def motion_blur(images: Images, strength: tuple[int, float], draws: Draws) -> Array:
    """Smear along a random direction within 45 degrees of the horizontal: a moving camera."""
    return streak(images, *strength, draws.uniform(-45, 45))


@register(
    kind="corruption",
    cifar=tuple(tuple(np.arange(1, end, 0.01)) for end in (1.06, 1.11, 1.16, 1.21, 1.26)),
    imagenet=tuple(
        tuple(np.arange(1, end, step))
        for end, step in ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))
    ),
)
def zoom_blur(images: Images, factors: tuple[float, ...], draws: Draws) -> Array:
    """Average the image with its centre zooms by each factor: a camera rushing forward."""
    intensities = images / 255
    return (intensities + zoomed_sum(intensities, factors)) / (len(factors) + 1)


@register(kind="corruption", cifar=(0.4, 0.6, 0.7, 0.8, 1), imagenet=(1, 2, 3, 4, 6))
def gaussian_blur(images: Images, sigma: float, draws: Draws) -> Array:
    """Average with Gaussian weights of standard deviation `sigma` pixels."""
    return smooth(images / 255, sigma)


def smooth(intensities: Array, sigma: float) -> Array:
    """Gaussian blur of (N, H, W, C) within each image, edges repeated, cut off at 4 sigma."""
    return np.asarray(ndimage.gaussian_filter(intensities, (0, sigma, sigma, 0), mode="nearest"))
