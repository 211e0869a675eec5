"""Digital: what cameras' and files' processing does to colour, shape and detail."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

import numpy as np
from PIL import Image
from scipy import ndimage

from fenchel.data.corruptions.base import Array, Draws, Images
from fenchel.data.corruptions.colour import hsv_to_rgb, rgb_to_hsv
from fenchel.data.corruptions.warp import affine, bilinear, reflect
from fenchel.names import register


@register(kind="corruption", cifar=(0.75, 0.5, 0.4, 0.3, 0.15), imagenet=(0.4, 0.3, 0.2, 0.1, 0.05))
def contrast(images: Images, factor: float, draws: Draws) -> Array:
    """Pull each channel towards its mean over the image: (x - mean) * factor + mean."""
    pixels = images.shape[1] * images.shape[2]
    # Summed as whole numbers, which no order of summation can change.
    means: Array = images.sum(axis=(1, 2), keepdims=True, dtype=np.int64) / pixels / 255
    return (images / 255 - means) * factor + means


@register(
    kind="corruption",
    cifar=(
        (0, 0, 0.08),
        (0.05, 0.2, 0.07),
        (0.08, 0.06, 0.06),
        (0.1, 0.04, 0.05),
        (0.1, 0.03, 0.03),
    ),
    # The published ImageNet constants are multiples of 244, for images of 224 pixels.
    imagenet=tuple(
        tuple(share * 244 / 224 for share in shares)
        for shares in (
            (2, 0.7, 0.1),
            (2, 0.08, 0.2),
            (0.05, 0.01, 0.02),
            (0.07, 0.01, 0.02),
            (0.12, 0.01, 0.02),
        )
    ),
)
def elastic_transform(images: Images, strength: tuple[float, float, float], draws: Draws) -> Array:
    """Move three points at random, then every pixel by a smooth random field.

    The strength is (displacement, smoothness, movement of the points) as shares of the shorter
    side: at 32 and 224 pixels the published constants result.
    """
    height, width = images.shape[1:3]
    side = min(height, width)
    displacement, smoothness, movement = (share * side for share in strength)
    # The published code takes (height, width) for (x, y) here; for square images it is the same.
    middle, reach = np.array([height, width]) // 2, side // 3
    points = middle + reach * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = points + draws.uniform(-movement, movement, (3, 2)).astype(np.float32)
    warped = affine(images.astype(np.float32) / 255, points.astype(np.float64), moved)
    fields = draws.uniform(-1, 1, (2, height, width))
    right, down = np.moveaxis(
        ndimage.gaussian_filter(fields, (0, 0, smoothness, smoothness), mode="reflect", truncate=3)
        * displacement,
        1,
        0,
    ).astype(np.float32)
    rows, columns = np.arange(height)[:, None] + down, np.arange(width) + right
    return bilinear(warped, rows, columns, reflect)


@register(
    kind="corruption", cifar=(0.95, 0.9, 0.85, 0.75, 0.65), imagenet=(0.6, 0.5, 0.4, 0.3, 0.25)
)
def pixelate(images: Images, factor: float, draws: Draws) -> Array:
    """Shrink by `factor` and enlarge again, both with a box filter."""
    height, width = images.shape[1:3]
    small = (max(1, int(width * factor)), max(1, int(height * factor)))
    box = Image.Resampling.BOX
    return _through_pillow(
        images, lambda picture: picture.resize(small, box).resize((width, height), box)
    )


@register(kind="corruption", cifar=(80, 65, 58, 50, 40), imagenet=(25, 18, 15, 10, 7))
def jpeg_compression(images: Images, quality: int, draws: Draws) -> Array:
    """Save as JPEG of the given quality and read back."""

    def compress(picture: Image.Image) -> Image.Image:
        file = BytesIO()
        picture.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return _through_pillow(images, compress)


@register(
    kind="corruption",
    cifar=((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    imagenet=((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
)
def saturate(images: Images, strength: tuple[float, float], draws: Draws) -> Array:
    """Scale and shift the saturation; grey images have none and stay as they are."""
    factor, offset = strength
    if images.shape[-1] == 1:
        return images
    hue, saturation, value = rgb_to_hsv(images / 255)
    return hsv_to_rgb(hue, np.clip(saturation * factor + offset, 0, 1), value)


def _through_pillow(images: Images, change: Callable[[Image.Image], Image.Image]) -> Images:
    result = np.empty_like(images)
    for before, after in zip(images, result, strict=True):
        picture = Image.fromarray(before.squeeze(-1) if before.shape[-1] == 1 else before)
        after[:] = np.asarray(change(picture)).reshape(before.shape)
    return result
