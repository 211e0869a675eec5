"""Less work: reuse within a batch, channels-last, the last stages alone, rarer updates, compilation."""

from __future__ import annotations

import copy
import gc
import weakref
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import fenchel
from fenchel.adapters import core as core_module
from fenchel.adapters import network as network_module
from fenchel.adapters.parameters import moving_names
from fenchel.models import resnet26

LOSS = fenchel.PolyLoss(epsilon=6.0)


class Block(nn.Module):
    """A residual block that writes into its tensors, as many do."""

    def __init__(self, width: int, norm: type[nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.GroupNorm(2, width) if norm is nn.GroupNorm else norm(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm(self.conv(x))
        out += x
        return self.relu(out)


class Net(nn.Module):
    """A stem, three stages and a head; the second stage is run twice."""

    def __init__(self, norm: type[nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.first, self.second, self.third = (Block(8, norm) for _ in range(3))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        h *= 2
        h = self.second(self.second(self.first(h)))
        return self.head(self.third(h).mean((-2, -1)))


def naive_step(model: nn.Module, names: list[str], x: Tensor, rate: float) -> Tensor:
    """Forward, backward, plain SGD with Nesterov momentum from rest, forward again: nothing shared."""
    twin = copy.deepcopy(model).eval()
    for module in twin.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
    moving = [value for name, value in twin.named_parameters() if name in names]
    objective = LOSS.conjugate(twin(x.clone())).mean()
    for value, gradient in zip(moving, torch.autograd.grad(objective, moving), strict=True):
        value.data -= rate * 1.9 * gradient
    return twin(x.clone()).detach()


@pytest.mark.parametrize(
    "parameters", ["normalization", "last:1", "last:2", ["head.weight"], "all"]
)
@pytest.mark.parametrize("channels_last", [True, False, None])
@pytest.mark.parametrize("norm", [nn.BatchNorm2d, nn.GroupNorm])
def test_every_fast_path_equals_the_naive_step(parameters, channels_last, norm) -> None:
    torch.manual_seed(0)
    model, x = Net(norm).double(), torch.rand(24, 3, 9, 9, dtype=torch.float64)
    adapted = fenchel.adapt(
        model,
        trained_with=LOSS,
        protect=False,
        learning_rate=0.1,
        parameters=parameters,
        channels_last=channels_last,
    )
    names = moving_names(model, parameters)
    torch.testing.assert_close(adapted(x), naive_step(model, names, x, 0.1), rtol=0, atol=1e-10)


def test_group_norm_on_channels_last_images_does_not_crash() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Flatten(), nn.Linear(288, 4))
    adapted = fenchel.adapt(model, trained_with=LOSS)
    x = torch.rand(16, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    assert adapted(x).isfinite().all()
    assert adapted.health().updates == 1


def test_what_lies_in_front_of_the_last_stage_is_computed_once() -> None:
    model = Net()
    computed: list[str] = []
    for name in ("first", "second", "third"):
        conv = getattr(model, name).conv
        conv.register_forward_hook(lambda *_, name=name: computed.append(name))
    fenchel.adapt(model, method="conjugate", trained_with=LOSS, parameters="last:1")(
        torch.rand(20, 3, 8, 8)
    )
    # The convolution of the third stage meets no moving parameter either.
    assert [computed.count(name) for name in ("first", "second", "third")] == [1, 2, 2]


def test_nothing_is_kept_after_the_batch() -> None:
    model, made = Net(), []
    model.stem.register_forward_hook(lambda *call: made.append(weakref.ref(call[-1])))
    adapted = fenchel.adapt(model, trained_with=LOSS, parameters="last:1", protect=False)
    adapted(torch.rand(20, 3, 8, 8))
    gc.collect()
    assert [reference() for reference in made] == [None, None]

    class Unlucky(fenchel.Entropy):  # type: ignore[misc]
        def value(self, h: Tensor) -> Tensor:
            raise RuntimeError("out of luck")

    broken = fenchel.adapt(model, objective=Unlucky(), parameters="last:1")
    with pytest.raises(RuntimeError, match="out of luck"):
        broken(torch.rand(20, 3, 8, 8))
    gc.collect()
    assert [reference() for reference in made] == [None, None, None]


def test_several_steps_reuse_what_none_of_them_reaches(monkeypatch) -> None:
    torch.manual_seed(0)
    model, x = Net().double(), torch.rand(20, 3, 8, 8, dtype=torch.float64)
    fast = fenchel.adapt(model, trained_with=LOSS, parameters="last:1", steps=3, learning_rate=0.1)
    monkeypatch.setattr(network_module, "Reuse", lambda twin, moving: None)
    slow = fenchel.adapt(model, trained_with=LOSS, parameters="last:1", steps=3, learning_rate=0.1)
    for _ in range(3):
        torch.testing.assert_close(fast(x), slow(x), rtol=0, atol=1e-12)


def test_reuse_and_views_do_not_meet() -> None:
    torch.manual_seed(0)
    x = torch.rand(20, 3, 8, 8)
    options = {"method": "memo", "input_range": (0, 1), "learning_rate": 0.1}
    model = Net()
    first = [fenchel.adapt(model, **options)(x) for _ in range(2)]
    assert torch.equal(*first)
    before = fenchel.adapt(model, predict="before", **options)(x)
    torch.testing.assert_close(before, fenchel.adapt(model, method="bn")(x))


def test_large_batches_of_images_go_to_channels_last_by_themselves(monkeypatch) -> None:
    formats = []
    model = Net()
    model.stem.register_forward_pre_hook(
        lambda _, x: formats.append(x[0].is_contiguous(memory_format=torch.channels_last))
    )
    adapted = fenchel.adapt(model, trained_with=LOSS, protect=False)
    adapted(torch.rand(20, 3, 8, 8))
    monkeypatch.setattr(core_module, "CHANNELS_LAST_ELEMENTS", 100)
    adapted(torch.rand(20, 3, 8, 8))
    fenchel.adapt(model, trained_with=LOSS, protect=False, channels_last=False)(
        torch.rand(20, 3, 8, 8)
    )
    assert formats == [False, False, True, True, False, False]  # two passes each


def test_updates_happen_on_every_second_batch_only() -> None:
    model = Net()
    adapted = fenchel.adapt(model, trained_with=LOSS, update_every=2, learning_rate=0.1)
    every = fenchel.adapt(model, trained_with=LOSS, learning_rate=0.1)
    batches = torch.rand(5, 20, 3, 8, 8)
    seen = []
    for x in batches:
        output = adapted(x)
        seen.append(adapted.health().updates)
        if len(seen) == 1:
            assert torch.equal(output, every(x))
    assert seen == [1, 1, 2, 2, 3]
    assert adapted.health().batches == 5
    adapted.reset()
    every.reset()
    assert torch.equal(adapted(batches[0]), every(batches[0]))


def test_running_statistics_move_between_updates_too() -> None:
    adapted = fenchel.adapt(Net(), trained_with=LOSS, update_every=3, statistics=0.2)
    means = []
    for x in torch.rand(3, 20, 3, 8, 8):
        adapted(x)
        means.append(adapted.state.statistics["first.norm.running_mean"])
    assert not torch.equal(means[0], means[1])
    assert not torch.equal(means[1], means[2])


def test_the_last_stages_of_a_residual_network_are_its_last_layers() -> None:
    model = resnet26(classes=10)
    one, two = moving_names(model, "last:1"), moving_names(model, "last:2")
    assert {name.split(".")[0] for name in one} == {"layer3"}
    assert {name.split(".")[0] for name in two} == {"layer2", "layer3"}
    wrapped = nn.Sequential(nn.Sequential(model))
    assert moving_names(wrapped, "last:1") == [f"0.0.{name}" for name in one]


@pytest.mark.parametrize("selection", ["last:0", "last:9", "last:x", "last:"])
def test_a_number_of_stages_that_is_none_is_refused(selection) -> None:
    with pytest.raises(ValueError, match="first, second, third"):
        moving_names(Net(), selection)


@pytest.mark.parametrize("protect", [{}, {"protect": False}], ids=["protected", "bare"])
def test_the_compile_flag_runs_the_network_compiled(monkeypatch, protect) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    bare = {"statistics": "batch", **protect}
    plain = fenchel.adapt(model, trained_with=LOSS, learning_rate=0.1, **bare)
    compiled = fenchel.adapt(model, trained_with=LOSS, learning_rate=0.1, **protect, compile=True)
    for x in torch.rand(3, 20, 6):
        torch.testing.assert_close(compiled(x), plain(x))


@pytest.mark.parametrize("name", ["steps", "update_every"])
def test_counts_below_one_are_refused(name) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a whole number"):
        fenchel.adapt(Net(), trained_with=LOSS, **{name: 0})
