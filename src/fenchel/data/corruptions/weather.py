"""Weather: snow, frost, fog, light and splashes between the camera and the scene."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import ndimage

from fenchel.data.corruptions.base import Array, Draws, Images
from fenchel.data.corruptions.colour import hsv_to_rgb, luma, rgb_to_hsv, with_channels
from fenchel.data.corruptions.motion import streak
from fenchel.data.corruptions.plasma import plasma
from fenchel.data.corruptions.splash import drops
from fenchel.data.corruptions.textures import COUNT, frost_textures
from fenchel.data.corruptions.zoom import zoomed_sum
from fenchel.names import register

WATER = np.array([175, 238, 238], dtype=np.float32) / 255
MUD = np.array([63, 42, 20], dtype=np.float32) / 255


@register(
    kind="corruption",
    cifar=(
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    imagenet=(
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
)
def snow(
    images: Images, strength: tuple[float, float, float, float, int, float, float], draws: Draws
) -> Array:
    """Bleach the scene and let flakes fall, within 45 degrees of the vertical.

    The flakes are what exceeds `threshold` in Gaussian noise, enlarged by `zoom` and smeared; they
    are added once as they are and once turned by 180 degrees.
    """
    mean, scale, zoom, threshold, radius, sigma, kept = strength
    noise = draws.normal(mean, scale, images.shape[1:3])[..., None]
    noise = zoomed_sum(noise, (zoom,))
    flakes = np.where(noise < threshold, 0, np.clip(noise, 0, 1) * 255).astype(np.uint8)
    layer = streak(flakes, radius, sigma, draws.uniform(-135, -45)) / 255
    scene = images.astype(np.float32) / 255
    bleached = kept * scene + (1 - kept) * np.maximum(scene, luma(scene) * 1.5 + 0.5)
    return np.asarray(bleached + layer + layer[:, ::-1, ::-1])


@register(
    kind="corruption",
    textured=True,
    cifar=((1, 0.2, 5), (1, 0.3, 5), (0.9, 0.4, 5), (0.85, 0.4, 5), (0.75, 0.45, 5)),
    imagenet=((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
)
def frost(
    images: Images, strength: tuple[float, float, int], draws: Draws, textures: Path | None
) -> Array:
    """Mix in a random part of a frost texture, of which every `stride`-th pixel is used."""
    scene_weight, frost_weight, stride = strength
    count, height, width, channels = images.shape
    choices = frost_textures(textures, stride, height, width)
    pieces = np.empty((count, height, width, 3), dtype=np.uint8)
    corners = draws.uniform(0, 1, (2,))
    for piece, choice, (down, right) in zip(pieces, draws.integers(0, COUNT), corners, strict=True):
        texture = choices[choice]
        top = int(down * (texture.shape[0] - height))
        left = int(right * (texture.shape[1] - width))
        piece[:] = texture[top : top + height, left : left + width]
    mixed = scene_weight * images + frost_weight * with_channels(pieces, channels)
    return np.clip(mixed, 0, 255).astype(np.uint8)


@register(
    kind="corruption",
    cifar=((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    imagenet=((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
)
def fog(images: Images, strength: tuple[float, float], draws: Draws) -> Array:
    """Add a fractal cloud, and scale back so that the brightest value keeps its place."""
    density, decay = strength
    height, width = images.shape[1:3]
    size = 1 << (max(height, width) - 1).bit_length()
    cloud = plasma(size, decay, draws)[:, :height, :width, None]
    intensities = images / 255
    brightest = intensities.max(axis=(1, 2, 3), keepdims=True)
    return np.asarray((intensities + density * cloud) * brightest / (brightest + density))


@register(kind="corruption", cifar=(0.05, 0.1, 0.15, 0.2, 0.3), imagenet=(0.1, 0.2, 0.3, 0.4, 0.5))
def brightness(images: Images, offset: float, draws: Draws) -> Array:
    """Add `offset` to the value of each pixel in hue-saturation-value."""
    intensities = images / 255
    if images.shape[-1] == 1:
        return intensities + offset
    hue, saturation, value = rgb_to_hsv(intensities)
    return hsv_to_rgb(hue, saturation, np.clip(value + offset, 0, 1))


@register(
    kind="corruption",
    cifar=(
        (0.62, 0.1, 0.7, 0.7, 0.5, False),
        (0.65, 0.1, 0.8, 0.7, 0.5, False),
        (0.65, 0.3, 1, 0.69, 0.5, False),
        (0.65, 0.1, 0.7, 0.69, 0.6, True),
        (0.65, 0.1, 0.5, 0.68, 0.6, True),
    ),
    imagenet=(
        (0.65, 0.3, 4, 0.69, 0.6, False),
        (0.65, 0.3, 3, 0.68, 0.6, False),
        (0.65, 0.3, 2, 0.68, 0.5, False),
        (0.65, 0.3, 1, 0.65, 1.5, True),
        (0.67, 0.4, 1, 0.65, 1.5, True),
    ),
)
def spatter(
    images: Images, strength: tuple[float, float, float, float, float, bool], draws: Draws
) -> Array:
    """Splash water (severities 1 to 3) or mud (4 and 5) on the lens.

    Both cover what exceeds `threshold` in smooth Gaussian noise. Water is added, up to `amount`;
    mud hides the scene where its mask, blurred by `amount`, stays above 0.8.
    """
    mean, scale, sigma, threshold, amount, muddy = strength
    noise = draws.normal(mean, scale, images.shape[1:3])
    liquid = ndimage.gaussian_filter(noise, (0, sigma, sigma), mode="nearest")
    scene = images.astype(np.float32) / 255
    channels = images.shape[-1]
    if not muddy:
        blots = np.where(liquid < threshold, 0, liquid * 255).astype(np.uint8)
        water = drops(blots)[..., None] * np.float32(amount)
        return np.asarray(scene + water * with_channels(WATER, channels))
    covered = (liquid > threshold).astype(np.float32)
    mask = ndimage.gaussian_filter(covered, (0, amount, amount), mode="nearest")[..., None]
    mask = np.where(mask < 0.8, 0, mask)
    return np.asarray(scene * (1 - mask) + mask * with_channels(MUD, channels))
