"""MEMO's objective: log-space values, views from a generator, pixel ranges."""

import pytest
import torch
from torch import Tensor

from fenchel.objectives import MarginalEntropy


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images() -> Tensor:
    return torch.rand(4, 3, 12, 16, generator=generator(7))


def test_value_is_the_entropy_of_the_mean_probabilities() -> None:
    h = torch.randn(3, 5, 7, dtype=torch.float64)
    mean = (h / 2).softmax(-1).mean(0)
    expected = -(mean * mean.log()).sum(-1)
    torch.testing.assert_close(MarginalEntropy(temperature=2.0)(h), expected)


def test_views_that_contradict_each_other_with_certainty_cost_log_two() -> None:
    h = torch.tensor([[[1e4, -1e4, -1e4]], [[-1e4, 1e4, -1e4]]], requires_grad=True)
    value = MarginalEntropy(views=2)(h)
    (slope,) = torch.autograd.grad(value.sum(), h)
    torch.testing.assert_close(value.detach(), torch.tensor([2.0]).log())
    assert slope.isfinite().all()


def test_scores_without_views_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(views, samples, classes\); got shape \(5, 7\)"):
        MarginalEntropy()(torch.randn(5, 7))


def test_views_repeat_with_the_generator_and_differ_without(images: Tensor) -> None:
    objective = MarginalEntropy(views=3, input_range=(0, 1))
    views = objective.make_views(images, generator(1))
    assert views.shape == (3, *images.shape)
    assert torch.equal(views, objective.make_views(images, generator(1)))
    assert not torch.equal(views, objective.make_views(images, generator(2)))
    assert not torch.equal(views[0], views[1])


def test_views_leave_the_input_and_the_global_generator_alone(images: Tensor) -> None:
    before, state = images.clone(), torch.get_rng_state()
    MarginalEntropy(input_range=(0, 1)).make_views(images, generator())
    assert torch.equal(images, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_views_stay_in_the_range_of_the_pixels(images: Tensor) -> None:
    for low, high in ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0)):
        x = low + (high - low) * images
        views = MarginalEntropy(views=8, input_range=(low, high)).make_views(x, generator())
        slack = 1e-5 * (high - low)
        assert low - slack <= views.min()
        assert views.max() <= high + slack


def test_views_of_rescaled_images_are_the_rescaled_views(images: Tensor) -> None:
    plain = MarginalEntropy(input_range=(0, 1)).make_views(images, generator())
    wide = MarginalEntropy(input_range=(-1, 1)).make_views(2 * images - 1, generator())
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    shift, scale = (torch.tensor(value)[:, None, None] for value in (mean, std))
    normalised = MarginalEntropy(mean=mean, std=std).make_views(
        (images - shift) / scale, generator()
    )
    # Posterising and solarising jump: a pixel on an edge may fall on either side.
    for other in ((wide + 1) / 2, normalised * scale + shift):
        assert ((plain - other).abs() < 1e-4).float().mean() > 0.97


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"views": 0}, "at least one view; got views=0"),
        ({"mean": (0.5,)}, "mean and std together"),
        ({"std": (0.5,)}, "mean and std together"),
        ({"input_range": (0, 1), "mean": (0.5,), "std": (0.5,)}, "got both"),
        ({"input_range": (1, 1)}, "low < high"),
        ({"mean": (0.5,), "std": (0.0,)}, "std > 0"),
    ],
)
def test_contradictory_settings_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MarginalEntropy(**arguments)  # type: ignore[arg-type]


def test_inputs_that_cannot_be_augmented_are_refused(images: Tensor) -> None:
    with pytest.raises(ValueError, match="range of the input's pixels"):
        MarginalEntropy().make_views(images, generator())
    ranged = MarginalEntropy(input_range=(0, 1))
    with pytest.raises(ValueError, match="float images"):
        ranged.make_views((images * 255).byte(), generator())
    with pytest.raises(ValueError, match="float images"):
        ranged.make_views(images[0], generator())
    with pytest.raises(ValueError, match="one mean per channel; got 2 for images of 3 channels"):
        MarginalEntropy(mean=(0.5, 0.5), std=(0.5, 0.5)).make_views(images, generator())
