"""AugMix operations against Pillow, image by image."""

import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor

from fenchel.objectives import augmix as module
from fenchel.objectives.augmix import OPERATIONS, augmix


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images() -> Tensor:
    """Smooth pictures with some grain on the 256 levels, of different contrast."""
    across = torch.linspace(0, 1, 20)[None, None, None] * torch.linspace(0.3, 1, 14)[:, None]
    noise = 0.3 * torch.rand(5, 3, 14, 20, generator=generator(3))
    contrast = torch.tensor([1.0, 0.8, 0.5, 0.3, 0.1])[:, None, None, None]
    return (255 * (0.1 + contrast * (0.6 * across + noise)).clamp(0, 1)).round() / 255


def to_pillow(image: Tensor) -> Image.Image:
    return Image.fromarray((255 * image).round().byte().permute(1, 2, 0).numpy())


def to_tensor(picture: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255


def constants(images: Tensor, level: float, sign: float = 1.0) -> tuple[Tensor, Tensor]:
    return torch.full((len(images),), level), torch.full((len(images),), sign)


def test_autocontrast_is_pillows(images: Tensor) -> None:
    changed = module.autocontrast(images, *constants(images, 0.1))
    for before, after in zip(images, changed, strict=True):
        expected = to_tensor(ImageOps.autocontrast(to_pillow(before)))
        assert (after - expected).abs().max() <= 1.01 / 255  # Pillow rounds down to a level


def test_autocontrast_leaves_a_constant_channel() -> None:
    flat = torch.full((1, 3, 4, 4), 0.4)
    assert torch.equal(module.autocontrast(flat, *constants(flat, 0.1)), flat)


def test_equalize_is_pillows(images: Tensor) -> None:
    for batch in (images, images.repeat(1, 1, 4, 4)):  # below and above one pixel a level
        changed = module.equalize(batch, *constants(batch, 0.1))
        for before, after in zip(batch, changed, strict=True):
            torch.testing.assert_close(after, to_tensor(ImageOps.equalize(to_pillow(before))))


@pytest.mark.parametrize("level", [0.01, 0.24, 0.26, 0.3])
def test_posterize_is_pillows(images: Tensor, level: float) -> None:
    changed = module.posterize(images, *constants(images, level))
    bits = 4 - int(level * 4)
    for before, after in zip(images, changed, strict=True):
        torch.testing.assert_close(after, to_tensor(ImageOps.posterize(to_pillow(before), bits)))


@pytest.mark.parametrize("level", [0.05, 0.3])
def test_solarize_is_pillows(images: Tensor, level: float) -> None:
    changed = module.solarize(images, *constants(images, level))
    for before, after in zip(images, changed, strict=True):
        expected = to_tensor(ImageOps.solarize(to_pillow(before), math.ceil(255 * (1 - level))))
        torch.testing.assert_close(after, expected)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize(
    ("operation", "matrix"),
    [
        (
            module.rotate,
            lambda level: (
                math.cos(math.radians(30 * level)),
                -math.sin(math.radians(30 * level)),
                0.0,
                math.sin(math.radians(30 * level)),
                math.cos(math.radians(30 * level)),
                0.0,
            ),
        ),
        (module.shear_horizontally, lambda level: (1.0, 0.3 * level, 0.0, 0.0, 1.0, 0.0)),
        (module.shear_vertically, lambda level: (1.0, 0.0, 0.0, 0.3 * level, 1.0, 0.0)),
        (module.translate_horizontally, lambda level: (1.0, 0.0, level * 20 / 3, 0.0, 1.0, 0.0)),
        (module.translate_vertically, lambda level: (1.0, 0.0, 0.0, 0.0, 1.0, level * 14 / 3)),
    ],
    ids=lambda value: getattr(value, "__name__", "matrix"),
)
def test_geometry_is_pillows_in_pixels_around_the_centre(
    operation: module.Operation, matrix: object, sign: float, images: Tensor
) -> None:
    level = 0.3
    changed = operation(images, *constants(images, level, sign))
    a, b, c, d, e, f = matrix(sign * level)  # type: ignore[operator]
    x, y = 20 / 2, 14 / 2
    about_centre = (a, b, c + x - a * x - b * y, d, e, f + y - d * x - e * y)
    for before, after in zip(images, changed, strict=True):
        for plain, moved in zip(before, after, strict=True):
            picture = Image.fromarray(plain.numpy())
            expected = torch.from_numpy(
                np.array(
                    picture.transform(
                        picture.size,
                        Image.Transform.AFFINE,
                        about_centre,
                        Image.Resampling.BILINEAR,
                    )
                )
            )
            # At the rim Pillow repeats the edge where torch fades to black.
            inner = (slice(4, -4), slice(6, -6))
            torch.testing.assert_close(moved[inner], expected[inner], rtol=0, atol=2e-3)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_each_image_is_changed_on_its_own_and_stays_in_range(
    operation: module.Operation, images: Tensor
) -> None:
    level, sign = torch.linspace(0.01, 0.3, 5), torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])
    together = operation(images, level, sign)
    alone = [operation(images[i : i + 1], level[i : i + 1], sign[i : i + 1]) for i in range(5)]
    torch.testing.assert_close(together, torch.cat(alone))
    assert together.shape == images.shape
    assert together.dtype == images.dtype
    assert together.min() >= 0
    assert together.max() <= 1 + 1e-6


def test_mixtures_stay_in_range_and_differ_from_the_image(images: Tensor) -> None:
    view = augmix(images.repeat(8, 1, 1, 1), generator())
    assert view.min() >= -1e-6
    assert view.max() <= 1 + 1e-6
    change = (view - images.repeat(8, 1, 1, 1)).abs().mean((1, 2, 3))
    assert (change > 1e-4).float().mean() > 0.9
    assert change.mean() < 0.3


def test_mixing_weights_are_uniform_on_the_simplex() -> None:
    weights = module._dirichlet(20000, 3, generator())
    torch.testing.assert_close(weights.sum(-1), torch.ones(20000, dtype=torch.float64))
    assert (weights.mean(0) - 1 / 3).abs().max() < 0.01
    # Dirichlet(1, 1, 1): the variance of a weight is (1/3)(2/3)/4 = 1/18.
    assert (weights.var(0) - 1 / 18).abs().max() < 0.002
