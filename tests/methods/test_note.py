"""`statistics="note"`: the source's statistics, corrected for every sample, as the formula says."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import fenchel


class Plain(nn.Module):
    """Instance-aware normalisation by hand, sample by sample and channel by channel."""

    def __init__(self, layer, reach):
        super().__init__()
        self.layer, self.reach = layer, reach

    def forward(self, x):
        rows = []
        for sample in x:
            channels = []
            for channel, values in enumerate(sample):
                source_mean = self.layer.running_mean[channel]
                source_variance = self.layer.running_var[channel]
                count = values.numel()
                mean, variance = source_mean, source_variance
                if count > 1:
                    beyond = self.reach * (source_variance / count).sqrt()
                    mean = source_mean + shrink(values.mean() - source_mean, beyond)
                    beyond = self.reach * source_variance * math.sqrt(2 / (count - 1))
                    variance = source_variance + shrink(values.var() - source_variance, beyond)
                    variance = variance.clamp_min(0)
                normalised = (values - mean) / (variance + self.layer.eps).sqrt()
                channels.append(normalised * self.layer.weight[channel] + self.layer.bias[channel])
            rows.append(torch.stack(channels))
        return torch.stack(rows)


def shrink(difference, beyond):
    if difference > beyond:
        return difference - beyond
    return difference + beyond if difference < -beyond else torch.zeros_like(difference)


SHAPES = {
    "flat": (nn.BatchNorm1d, (6,)),
    "sequence": (nn.BatchNorm1d, (6, 5)),
    "image": (nn.BatchNorm2d, (6, 3, 4)),
    "volume": (nn.BatchNorm3d, (6, 2, 3, 2)),
}


def network(kind, reach=None):
    """One layer with statistics of its own and a linear head, with the layer by hand if `reach` is given."""
    layer_type, shape = SHAPES[kind]
    torch.manual_seed(0)
    layer = layer_type(6).double()
    with torch.no_grad():
        for tensor in (layer.running_mean, layer.bias):
            tensor.uniform_(-0.5, 0.5)
        for tensor in (layer.running_var, layer.weight):
            tensor.uniform_(0.5, 1.5)
    head = nn.Linear(math.prod(shape), 4).double()
    first = layer if reach is None else Plain(layer, reach)
    return nn.Sequential(first, nn.Flatten(), head).eval(), shape


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize(
    ("statistics", "reach"), [("note", 4), ("note:1.5", 1.5), ("note:0.1", 0.1)]
)
@pytest.mark.parametrize("kind", SHAPES)
def test_it_is_the_formula_sample_by_sample(kind, statistics, reach, size):
    (model, shape), (plain, _) = network(kind), network(kind, reach)
    adapted = fenchel.adapt(model, method="bn", statistics=statistics)
    far = torch.arange(size).double()[:, None] / 2  # the later, the farther from the source
    x = torch.randn(size, *shape).double()
    x = (x.flatten(1) * (1 + far) - far).reshape(x.shape)
    with torch.no_grad():
        torch.testing.assert_close(adapted(x), plain(x), rtol=0, atol=1e-12)
        corrected = bool((adapted(x) - model(x)).abs().max() > 1e-3)
    if kind == "flat" or size > 1:
        assert corrected == (kind != "flat")


@pytest.mark.parametrize("kind", SHAPES)
def test_entropy_under_it_equals_plain_torch_over_a_stream(kind):
    (model, shape), (plain, _) = network(kind), network(kind, 1.0)
    adapted = fenchel.adapt(
        model, method="entropy", statistics="note:1", optimizer="adam", learning_rate=0.02
    )
    layer = plain[0].layer
    optimizer = torch.optim.Adam([layer.weight, layer.bias], lr=0.02)
    for index in range(20):
        x = torch.randn(3, *shape).double() * (1 + index / 5) + index / 10
        logits = plain(x)
        optimizer.zero_grad()
        (-(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)).mean().backward()
        optimizer.step()
        with torch.no_grad():
            torch.testing.assert_close(adapted(x), plain(x), rtol=0, atol=1e-8)
    for name in ("weight", "bias"):
        moved = adapted.state.parameters[f"0.{name}"]
        torch.testing.assert_close(moved, getattr(layer, name).detach(), rtol=0, atol=1e-8)
        assert not torch.equal(moved, model[0].get_parameter(name))


def test_a_sample_is_normalised_by_itself_whatever_else_is_in_the_batch():
    model, shape = network("image")
    adapted = fenchel.adapt(model, method="bn", statistics="note")
    x = 3 * torch.randn(9, *shape).double() + 1
    together = adapted(x)
    one_by_one = torch.cat([adapted(sample[None]) for sample in x])
    torch.testing.assert_close(together, one_by_one, rtol=0, atol=1e-12)


def test_constant_samples_are_normalised_without_dividing_by_zero():
    model, shape = network("image")
    adapted = fenchel.adapt(model, method="entropy", statistics="note:0.01", learning_rate=0.1)
    for value in (0.0, 5.0, -1e3):
        assert adapted(torch.full((4, *shape), value).double()).isfinite().all()
    assert adapted.health().updates == 3


def test_a_layer_that_does_more_than_normalise_still_does():
    class Activated(nn.BatchNorm2d):
        def forward(self, x):
            return super().forward(x).relu()

    model, shape = network("image")
    activated, _ = network("image")
    activated[0].__class__ = Activated
    apart = nn.Sequential(model[0], nn.ReLU(), *model[1:])
    x = 2 * torch.randn(5, *shape).double()
    outputs = [
        fenchel.adapt(each, method="bn", statistics="note:1")(x) for each in (activated, apart)
    ]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-12)


def test_half_precision_and_modes_of_the_adapter_change_nothing_else():
    model, shape = network("image")
    x = torch.randn(5, *shape)
    adapted = fenchel.adapt(model.float(), method="bn", statistics="note:1")
    expected = adapted(x)
    adapted.eval()
    assert torch.equal(adapted(x), expected)
    halves = fenchel.adapt(model.bfloat16(), method="bn", statistics="note:1")(x.bfloat16())
    assert halves.dtype == torch.bfloat16
    torch.testing.assert_close(halves.float(), expected, rtol=0.1, atol=0.1)


@pytest.mark.parametrize(
    "statistics",
    ["note:", "note:0", "note:-1", "note:inf", "mix", "mix:0", "mix:1.1", "mix:a", "not"],
)
def test_numbers_that_mean_nothing_are_refused(statistics):
    with pytest.raises(ValueError, match=r"'note:K' with K > 0; got '" + statistics):
        fenchel.adapt(network("image")[0], method="bn", statistics=statistics)


def test_a_compiled_network_is_refused():
    with pytest.raises(ValueError, match=r"compile=True needs statistics .* got 'note'"):
        fenchel.adapt(network("image")[0], method="bn", statistics="note", compile=True)
