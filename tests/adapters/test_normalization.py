"""Which layers are found, and the statistics they use, against computations by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fenchel
from fenchel.adapters.normalization import is_normalization


class ActivatedBatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation that also applies the activation, as image-model libraries have it."""

    def __init__(self, channels):
        super().__init__(channels)
        self.drop, self.act = nn.Identity(), nn.ReLU()

    def forward(self, x):
        use_batch = self.training or self.running_mean is None
        tracked = not self.training or self.track_running_stats
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
        x = nn.functional.batch_norm(
            x,
            self.running_mean if tracked else None,
            self.running_var if tracked else None,
            self.weight,
            self.bias,
            use_batch,
            self.momentum,
            self.eps,
        )
        return self.act(self.drop(x))


class TheirRMSNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels, 1, 1))

    def forward(self, x):
        return self.gain * x * (x.square().mean(1, keepdim=True) + 1e-6).rsqrt()


class LayerNormOverChannels(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class RMSNormOverChannels(nn.RMSNorm):
    def forward(self, x):
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


IMAGE_LAYERS = {
    "batch": (nn.BatchNorm2d, 2),
    "sync": (nn.SyncBatchNorm, 2),
    "activated": (ActivatedBatchNorm2d, 2),
    "layer": (LayerNormOverChannels, 2),
    "group": (lambda channels: nn.GroupNorm(2, channels), 2),
    "rms": (RMSNormOverChannels, 1),
    "instance": (lambda channels: nn.InstanceNorm2d(channels, affine=True), 2),
    "theirs": (TheirRMSNorm, 1),
}


@pytest.mark.parametrize("name", IMAGE_LAYERS)
def test_every_normalization_layer_is_found_and_moves(
    make_network, make_stream, adapt, untouched, name
):
    layer, tensors = IMAGE_LAYERS[name]
    model = make_network(norm=layer)
    with untouched(model):
        adapted = adapt(model)
        for batch in make_stream(3):
            adapted(batch)
    assert list(adapted.state.parameters) == [
        key for key, _ in model.named_parameters() if key.startswith(("1.", "4."))
    ]
    assert len(adapted.state.parameters) == 2 * tensors
    for key, value in adapted.state.parameters.items():
        assert not torch.equal(value, model.get_parameter(key)), key
    assert adapted.health().updates == 3


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.BatchNorm1d, (20, 6)),
        (nn.BatchNorm1d, (20, 6, 5)),
        (nn.BatchNorm2d, (20, 6, 4, 4)),
        (nn.BatchNorm3d, (20, 6, 2, 3, 4)),
        (nn.SyncBatchNorm, (20, 6, 4, 4)),
    ],
)
def test_batch_norm_of_every_dimension_uses_the_batch(layer, shape):
    torch.manual_seed(0)
    model = nn.Sequential(layer(6), nn.Flatten()).eval()
    x = torch.randn(shape) * 3 + 1
    axes = [axis for axis in range(len(shape)) if axis != 1]
    mean = x.mean(axes, keepdim=True)
    variance = x.var(axes, unbiased=False, keepdim=True)
    expected = ((x - mean) / (variance + model[0].eps).sqrt()).flatten(1)
    adapted = fenchel.adapt(model, method="entropy", predict="before", learning_rate=0.1)
    torch.testing.assert_close(adapted(x), expected, rtol=1e-4, atol=1e-5)
    assert not torch.equal(adapted(x), expected)
    assert int(model[0].num_batches_tracked) == 0


def test_timm_s_own_activated_batch_norm_is_found(
    make_network, make_stream, adapt, untouched, optional_package
):
    model = make_network(norm=optional_package("timm").layers.BatchNormAct2d)
    with untouched(model):
        adapted = adapt(model)
        for batch in make_stream(2):
            adapted(batch)
    assert len(adapted.state.parameters) == 4
    batch = make_stream(1)[0]
    plain = make_network(norm=ActivatedBatchNorm2d)
    assert torch.equal(adapt(model, "bn")(batch), adapt(plain, "bn")(batch))


class WeightedNormalizer(nn.Module):
    """Has "norm" in its name but a matrix for a parameter."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))


class NormedBlock(nn.Module):
    """Has "norm" in its name but is made of other layers."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.inner = nn.Sequential()


def test_what_only_sounds_like_a_norm_is_not_one():
    for module in (WeightedNormalizer(), NormedBlock(), nn.Linear(3, 3), nn.LocalResponseNorm(2)):
        assert not is_normalization(module)
    assert is_normalization(TheirRMSNorm(3))


def naive_batch_norm(x, mean, variance, layer):
    x = (x - mean[:, None, None]) / (variance[:, None, None] + layer.eps).sqrt()
    return x * layer.weight[:, None, None] + layer.bias[:, None, None]


def naive_forward(model, x, statistics):
    """The network of these tests by hand; `statistics(index, x)` gives each layer's mean and variance."""
    x = model[0](x)
    x = naive_batch_norm(x, *statistics(1, x), model[1]).relu()
    x = model[3](x)
    x = naive_batch_norm(x, *statistics(4, x), model[4]).relu()
    return model[8](x.flatten(1))


def batch_statistics(index, x):
    return x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)


@torch.no_grad()
def test_batch_statistics_equal_those_by_hand(make_network, make_stream, adapt):
    model, batch = make_network(), make_stream(1)[0]
    expected = naive_forward(model, batch, batch_statistics)
    torch.testing.assert_close(adapt(model, "bn")(batch), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_source_statistics_equal_those_by_hand(make_network, make_stream, adapt):
    model, batch = make_network(), make_stream(1)[0]

    def source_statistics(index, x):
        return model[index].running_mean, model[index].running_var

    expected = naive_forward(model, batch, source_statistics)
    output = adapt(model, "bn", statistics="source")(batch)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_mixed_statistics_equal_those_by_hand_over_a_stream(make_network, make_stream, adapt):
    model, weight = make_network(), 0.3
    kept = {i: [model[i].running_mean.clone(), model[i].running_var.clone()] for i in (1, 4)}

    def mixed_statistics(index, x):
        batch = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=True)
        kept[index] = [
            (1 - weight) * a + weight * b for a, b in zip(kept[index], batch, strict=True)
        ]
        return kept[index]

    adapted = adapt(model, "bn", statistics=weight)
    for batch in make_stream(4):
        expected = naive_forward(model, batch, mixed_statistics)
        torch.testing.assert_close(adapted(batch), expected, rtol=1e-4, atol=1e-5)
    for index in (1, 4):
        for name, value in zip(("mean", "var"), kept[index], strict=True):
            mixed = adapted.state.statistics[f"{index}.running_{name}"]
            torch.testing.assert_close(mixed, value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["entropy", "memo"])
def test_a_batch_enters_the_mix_once_however_often_the_model_runs(
    make_network, make_stream, adapt, method
):
    batch = make_stream(1)[0]
    still = adapt(make_network(), "bn", statistics=0.3)
    moving = adapt(make_network(), method, statistics=0.3, steps=3)
    still(batch), moving(batch)
    for name, value in still.state.statistics.items():
        assert torch.equal(value, moving.state.statistics[name])


def test_a_mix_on_a_model_without_batch_norm_has_nothing_to_mix(make_network, make_stream, adapt):
    model = make_network(norm=LayerNormOverChannels)
    mixed, plain = adapt(model, statistics=0.3), adapt(model)
    batch = make_stream(1)[0]
    assert torch.equal(mixed(batch), plain(batch))
    assert mixed.state.statistics == {}


def test_batch_norm_without_running_statistics_uses_the_batch_in_every_mode(
    make_network, make_stream, adapt
):
    model = make_network(norm=lambda c: nn.BatchNorm2d(c, track_running_stats=False))
    batch = make_stream(1)[0]
    expected = adapt(model)(batch)
    for statistics in ("source", 0.3):
        assert torch.equal(adapt(model, statistics=statistics)(batch), expected)


@pytest.mark.parametrize("statistics", ["batch", 0.3])
def test_a_model_that_is_one_batch_norm_layer_adapts(statistics):
    torch.manual_seed(0)
    adapted = fenchel.adapt(nn.BatchNorm1d(3), method="entropy", statistics=statistics)
    assert adapted(torch.randn(20, 3)).shape == (20, 3)
    assert list(adapted.state.parameters) == ["weight", "bias"]


def test_a_layer_used_twice_moves_once_and_everywhere(make_stream):
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(8)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), norm, nn.Linear(8, 8), norm)
    adapted = fenchel.adapt(model, method="entropy", learning_rate=0.1)
    batch = make_stream(1)[0]
    adapted(batch)
    assert list(adapted.state.parameters) == ["2.weight", "2.bias"]
    twin = adapted.adapted_model()
    assert twin[2] is twin[4]
    adapted.freeze()
    assert torch.equal(fenchel.adapt(twin, method="bn")(batch), adapted(batch))


@pytest.mark.parametrize("statistics", ["running", 0, 1, 0.0, 1.0, -0.1, float("nan")])
def test_other_statistics_are_refused(make_network, adapt, statistics):
    with pytest.raises(ValueError, match="statistics must be 'auto', 'batch', 'source', or"):
        adapt(make_network(), statistics=statistics)
