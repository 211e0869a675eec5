"""Strong views: pixels stay pixels, draws come from the generator, images that show nothing stay flat."""

import pytest
import torch
from torch import Tensor

from fenchel.objectives.strong_view import NOISE, strong_view


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images() -> Tensor:
    return torch.rand(6, 3, 12, 16, generator=generator(7))


def test_views_repeat_with_the_generator_and_differ_without(images: Tensor) -> None:
    before, state = images.clone(), torch.get_rng_state()
    view = strong_view(images, generator(1))
    assert view.shape == images.shape
    assert torch.equal(view, strong_view(images, generator(1)))
    assert not torch.equal(view, strong_view(images, generator(2)))
    assert torch.equal(images, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_every_image_draws_its_own_changes(images: Tensor) -> None:
    same = images[:1].expand(6, -1, -1, -1)
    view = strong_view(same, generator())
    assert all((view[0] - other).abs().mean() > 10 * NOISE for other in view[1:])


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_a_flat_image_stays_flat_but_for_noise(channels: int, value: float) -> None:
    view = strong_view(torch.full((4, channels, 9, 9), value), generator())
    assert 0 <= view.min() <= view.max() <= 1
    spread = view.flatten(1).std(-1)
    assert bool((spread < 1.5 * NOISE).all()), "the border is repeated, never black"


def test_views_keep_what_an_image_shows() -> None:
    """A bright disk on the left or, mirrored, on the right; never gone, never all over the image."""
    rows, columns = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    disk = (((rows - 16) ** 2 + (columns - 8) ** 2) < 25).float()
    view = strong_view(disk.expand(64, 3, -1, -1), generator())
    mass = view.sum((1, 2, 3))
    centre = (view.sum((1, 2)) * torch.arange(32.0)).sum(-1) / mass
    assert bool(((centre - 8).abs() < 4).logical_or((centre - 23).abs() < 4).all())
    assert 16 < int((centre < 16).sum()) < 48
