"""Adapting is on trial: shifted images confirm predictions, or do not."""

from __future__ import annotations

import copy
import math
import warnings

import pytest
import torch
from torch import Tensor, nn

import fenchel
from fenchel.adapters.inputs import Inputs
from fenchel.adapters.suited import KEEN, TRUST
from fenchel.adapters.trial import EARLIEST, FEWEST, MORE, MOST, Confirmed, Trial, shifted_copy

CLASSES, SIDE = 4, 16
GENERATOR = torch.Generator().manual_seed(8)
PATTERN = torch.randn(CLASSES, SIDE * SIDE, generator=GENERATOR) / SIDE


class TwoChannels(nn.Module):
    """Tells classes by the mean of a channel, and by a fine pattern in another one if there is any."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(2)
        self.scale = nn.Parameter(torch.tensor([4.0, 3.0]))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        coarse = -((x[:, :1].mean((2, 3)) - torch.linspace(-1.5, 1.5, CLASSES).to(x)).square())
        return self.scale[0] * coarse + self.scale[1] * x[:, 1].flatten(1) @ PATTERN.to(x).T


def images(count: int, *, fine: float, seed: int) -> tuple[Tensor, Tensor]:
    """Images of random classes, whose second channel is noise of a standard deviation."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    x = torch.randn(count, 2, SIDE, SIDE, generator=generator)
    levels = torch.linspace(-1.5, 1.5, CLASSES)[labels]
    x[:, 0] = levels.view(-1, 1, 1) * 0.98 + 0.2 * x[:, 0]
    x[:, 1] *= fine
    return x, labels


def errors(adapted: nn.Module, batches: range, fine: float = 0.02, size: int = 50) -> float:
    wrong = 0
    for seed in batches:
        x, labels = images(size, fine=fine, seed=seed)
        wrong += int((adapted(x).argmax(-1) != labels).sum())
    return 100 * wrong / (size * len(batches))


# --- the measure ---------------------------------------------------------------------------------


def test_confirmed_information_is_the_plain_formula_however_it_is_added_up() -> None:
    p, q = (torch.randn(90, 6, generator=GENERATOR).mul(2).softmax(-1) for _ in range(2))
    found = Confirmed.of(p[:30], q[:30]) + Confirmed.of(p[30:], q[30:])
    mean_p, mean_q = p.double().mean(0).tolist(), q.double().mean(0).tolist()
    between = -sum(a * math.log(b) for a, b in zip(mean_p, mean_q, strict=True))
    crossed = [
        -sum(a * math.log(b) for a, b in zip(one, other, strict=True))
        for one, other in zip(p.double().tolist(), q.double().tolist(), strict=True)
    ]
    assert found.information == pytest.approx(between - sum(crossed) / 90)
    again = Confirmed.from_tensor(found.to_tensor())
    assert again.information == found.information
    assert again.count == 90


def test_sure_predictions_that_the_copies_confirm_have_all_the_information() -> None:
    p = torch.eye(5).repeat(8, 1)
    assert Confirmed.of(p, p).information == pytest.approx(math.log(5))
    turned = p.roll(1, 0)  # every copy is predicted to be of another class
    assert Confirmed.of(p, turned).information < -10


def test_a_trial_fails_by_the_share_that_is_left_and_not_on_few_images() -> None:
    sharp = torch.eye(5).repeat(FEWEST, 1)[:FEWEST]
    blurred = 0.7 * sharp + 0.3 / 5
    good, bad = Confirmed.of(sharp, sharp), Confirmed.of(blurred, blurred)
    assert "shifted by a few pixels" in Trial(bad, good).failure
    assert not Trial(good, bad).failure
    assert not Trial(good, good).failure
    few = Confirmed.of(blurred[: FEWEST - 1], blurred[: FEWEST - 1])
    assert not Trial(few, Confirmed.of(sharp[: FEWEST - 1], sharp[: FEWEST - 1])).failure
    assert not Trial().failure
    blind = torch.full((FEWEST, 5), 0.2)
    wild = torch.eye(5).repeat(FEWEST, 1)[:FEWEST]
    nothing, worse = Confirmed.of(blind, blind), Confirmed.of(wild, wild.roll(1, 0))
    assert not Trial(worse, nothing).failure  # the source has nothing that could be lost
    assert not Trial(worse, worse, nothing).wants_keen
    trial = Trial()
    while not trial.over:
        trial = trial.after(bad, good)
    assert MOST <= trial.count < MOST + FEWEST
    assert Trial.from_tensors(trial.to_tensors()).failure == trial.failure
    assert Trial.from_tensors({}) == Trial()


def test_chance_makes_no_trial_fail() -> None:
    """A few images tell a small loss from none only by chance."""
    sharp = torch.eye(5).repeat(200, 1)
    slightly = 0.98 * sharp + 0.02 / 5
    good, bad = Confirmed.of(sharp[:200], sharp[:200]), Confirmed.of(slightly[:200], slightly[:200])
    assert 0.9 * good.information < bad.information < 0.95 * good.information
    assert not Trial(bad, good).failure
    whole = Trial(Confirmed.of(slightly, slightly), Confirmed.of(sharp, sharp))
    assert whole.count == 1000
    assert whole.failure


def test_closer_statistics_win_a_trial_by_a_margin_and_not_on_few_images() -> None:
    sharp = torch.eye(5).repeat(EARLIEST, 1)[:EARLIEST]
    good, bad = Confirmed.of(sharp, sharp), Confirmed.of(0.7 * sharp + 0.06, 0.7 * sharp + 0.06)
    assert Trial(bad, bad, good).wants_keen
    assert not Trial(good, bad, bad).wants_keen
    assert not Trial(good, bad, good).wants_keen  # they are no better
    assert not Trial(bad, good, good).wants_keen  # nor better than the source model
    assert not Trial(bad, bad).wants_keen
    few = [Confirmed.of(p[:-1], p[:-1]) for p in (0.7 * sharp + 0.06, sharp)]
    assert not Trial(few[0], few[0], few[1]).wants_keen
    won = Trial(bad, bad, good).after(bad, bad, good)
    assert won.wants_keen
    assert Trial.from_tensors(won.to_tensors()).wants_keen
    assert not won.after(bad, bad).wants_keen  # not of the same images
    assert MORE > 1


def test_copies_are_shifted_by_a_sixteenth_and_repeat_the_edge() -> None:
    x = torch.rand(2, 3, 32, 48)
    copies = shifted_copy(Inputs((x,), {"scale": 2}))
    assert copies is not None
    moved = copies.samples()
    assert torch.equal(moved[..., 2:, 3:], x[..., :-2, :-3])
    assert torch.equal(moved[..., 0, 3:], x[..., 0, :-3])
    assert torch.equal(moved[..., 2:, 0], x[..., :-2, 0])
    assert copies.kwargs == {"scale": 2}


@pytest.mark.parametrize(
    "x", [torch.rand(4, 12), torch.rand(4, 3, 6, 6), torch.ones(4, 3, 9, 9, dtype=torch.uint8)]
)
def test_samples_that_are_no_images_are_not_shifted(x: Tensor) -> None:
    assert shifted_copy(Inputs((x,), {})) is None


# --- on a stream ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fenchel.HarmWarning")
def test_statistics_that_make_a_network_worse_are_trusted_less() -> None:
    source = TwoChannels().eval()
    told: list[fenchel.HarmWarning] = []
    adapted = fenchel.adapt(source, trained_with="cross-entropy", on_verdict=told.append)
    under_its_statistics = fenchel.adapt(copy.deepcopy(source), method="bn")
    alone = errors(source, range(60))
    assert errors(under_its_statistics, range(60)) > alone + 20
    early, later = errors(adapted, range(4)), errors(adapted, range(4, 60))
    assert early > alone + 3  # nothing can be known at first
    assert later <= alone + 0.5
    first = told[0]
    assert (first.verdict, first.action) == ("suspect", "fell back")
    assert "shifted by a few pixels" in first.reason
    assert float(adapted.state.seen[TRUST]) < 1
    assert adapted.health().verdict == "healthy"
    assert adapted.health().fell_back >= 1


@pytest.mark.filterwarnings("ignore::fenchel.HarmWarning")
def test_a_change_of_the_stream_begins_a_new_trial() -> None:
    adapted = fenchel.adapt(TwoChannels().eval(), trained_with="cross-entropy")
    errors(adapted, range(10))
    assert float(adapted.state.seen[TRUST]) < 1
    errors(adapted, range(10, 12), fine=30.0)
    assert float(adapted.state.seen[TRUST]) == 1


def test_images_that_confirm_the_adapter_raise_no_doubt() -> None:
    adapted = fenchel.adapt(TwoChannels().eval(), trained_with="cross-entropy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        errors(adapted, range(20), fine=4.0)
    assert float(adapted.state.seen[TRUST]) == 1
    assert adapted.health().fell_back == 0


class FineLevels(nn.Module):
    """Tells classes by the mean of an image, whose pixels differ far more: small offsets mislead it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1)

    def forward(self, x: Tensor) -> Tensor:
        levels = 0.3 * torch.linspace(-1.5, 1.5, CLASSES).to(x)
        return -200 * (self.norm(x).mean((2, 3)) - levels).square()

    @staticmethod
    def batch(seed: int, offset: float, size: int = 50) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(CLASSES, (size,), generator=generator)
        levels = 0.3 * torch.linspace(-1.5, 1.5, CLASSES)[labels]
        noise = torch.randn(size, 1, SIDE, SIDE, generator=generator)
        return levels.view(-1, 1, 1, 1) + 0.94 * noise + offset, labels


def error_of_levels(adapted: nn.Module, batches: range, offset: float) -> float:
    found = [FineLevels.batch(seed, offset) for seed in batches]
    wrong = sum(int((adapted(x).argmax(-1) != labels).sum()) for x, labels in found)
    return 100 * wrong / sum(len(labels) for _, labels in found)


def test_statistics_follow_the_stream_closely_where_copies_confirm_more() -> None:
    source = FineLevels().eval()
    adapted = fenchel.adapt(source, trained_with="cross-entropy")
    watched = fenchel.adapt(
        source, trained_with="cross-entropy", method="bn", statistics="auto", protect="watch"
    )
    early = error_of_levels(adapted, range(1), 0.25)
    assert float(adapted.state.seen[KEEN]) == 0
    at_once = error_of_levels(adapted, range(1, 2), 0.25)  # the batch that shows it profits
    assert float(adapted.state.seen[KEEN]) == 1
    later = error_of_levels(adapted, range(2, 40), 0.25)
    assert at_once < early - 5
    assert later < early - 10
    assert adapted.health().verdict == "healthy"
    assert (adapted.health().fell_back, adapted.health().resets) == (0, 0)
    assert error_of_levels(watched, range(40), 0.25) > later + 10
    assert float(watched.state.seen[KEEN]) == 0  # nothing is done where only a report is wanted


def test_statistics_stay_as_they_are_where_the_images_are_the_sources() -> None:
    source = FineLevels().eval()
    adapted = fenchel.adapt(source, trained_with="cross-entropy")
    alone = error_of_levels(source, range(30), 0.0)
    assert error_of_levels(adapted, range(30), 0.0) <= alone + 0.5
    assert float(adapted.state.seen[KEEN]) == 0


@pytest.mark.parametrize("method", ["bn", "conjugate", "eta"])
def test_batch_statistics_that_make_a_network_worse_are_told(method: str) -> None:
    settings = {"method": method, "trained_with": "cross-entropy"}
    watched = fenchel.adapt(TwoChannels().eval(), protect="watch", **settings)
    bare = fenchel.adapt(TwoChannels().eval(), protect=False, **settings)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for seed in range(8):
            x, _ = images(50, fine=0.02, seed=seed)
            assert torch.equal(watched(x), bare(x))
    assert any("shifted by a few pixels" in str(each.message) for each in caught)
    assert watched.health().verdict == "suspect"


@pytest.mark.filterwarnings("ignore::fenchel.HarmWarning")
def test_a_trial_goes_on_where_it_was_saved() -> None:
    def fresh() -> fenchel.Adapter:
        return fenchel.adapt(TwoChannels().eval(), trained_with="cross-entropy")

    whole, half, rest = fresh(), fresh(), fresh()
    errors(half, range(2))
    rest.load_state_dict(half.state_dict())
    errors(whole, range(2))
    for seed in range(2, 8):
        x, _ = images(50, fine=0.02, seed=seed)
        assert torch.equal(whole(x), rest(x))
    assert rest.health() == whole.health()
