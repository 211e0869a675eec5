"""BN-alpha: (1 - alpha) source + alpha batch, anew for every batch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import fenchel


class Plain(nn.Module):
    """A batch normalisation by hand whose statistics are the mix."""

    def __init__(self, layer, alpha):
        super().__init__()
        self.layer, self.alpha = layer, alpha

    def forward(self, x):
        mean = (1 - self.alpha) * self.layer.running_mean + self.alpha * x.mean((0, 2, 3))
        spread = x.var((0, 2, 3), unbiased=False)
        variance = (1 - self.alpha) * self.layer.running_var + self.alpha * spread
        x = (x - mean[:, None, None]) / (variance[:, None, None] + self.layer.eps).sqrt()
        return x * self.layer.weight[:, None, None] + self.layer.bias[:, None, None]


def in_plain_torch(model, alpha):
    plain = copy.deepcopy(model)
    for index, layer in enumerate(plain):
        if isinstance(layer, nn.BatchNorm2d):
            plain[index] = Plain(layer, alpha)
    return plain


@torch.no_grad()
@pytest.mark.parametrize("alpha", [0.1, 0.6, 1.0])
def test_it_is_the_formula_over_a_stream(make_network, make_stream, alpha):
    model = make_network()
    plain, adapted = (
        in_plain_torch(model, alpha),
        fenchel.adapt(model, method="bn-alpha", alpha=alpha),
    )
    for batch in make_stream(20):
        torch.testing.assert_close(adapted(batch), plain(batch), rtol=0, atol=1e-10)
    assert (plain(batch) - model(batch)).abs().max() > 0.01
    assert adapted.state.parameters == adapted.state.statistics == {}


def test_the_whole_weight_is_the_statistics_of_the_batch(make_network, make_stream):
    model = make_network()
    ours, theirs = (
        fenchel.adapt(model, method="bn-alpha:alpha=1"),
        fenchel.adapt(model, method="bn"),
    )
    for batch in make_stream(3, 20):
        torch.testing.assert_close(ours(batch), theirs(batch), rtol=0, atol=1e-10)


def test_nothing_is_kept_of_earlier_batches(make_network, make_stream):
    adapted = fenchel.adapt(make_network(), method="bn-alpha")
    first, *others = make_stream(3)
    expected = adapted(first)
    for batch in others:
        adapted(batch)
    assert torch.equal(adapted(first), expected)


def test_gradients_flow_through_the_share_of_the_batch(make_network, make_stream):
    model = make_network()
    plain = in_plain_torch(model, 0.3)
    moving = [layer for index in (1, 4) for layer in plain[index].layer.parameters()]
    optimizer = torch.optim.SGD(moving, lr=0.05)
    adapted = fenchel.adapt(
        model,
        method="entropy",
        statistics="mix:0.3",
        optimizer=fenchel.SGD(learning_rate=0.05, momentum=0.0, nesterov=False),
    )
    for batch in make_stream(20):
        logits = plain(batch)
        optimizer.zero_grad()
        (-(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)).mean().backward()
        optimizer.step()
        with torch.no_grad():
            torch.testing.assert_close(adapted(batch), plain(batch), rtol=0, atol=1e-8)
    for ours, theirs in zip(adapted.state.parameters.values(), moving, strict=True):
        torch.testing.assert_close(ours, theirs.detach(), rtol=0, atol=1e-8)


def test_one_sample_and_a_constant_batch_are_predicted(make_network):
    flat = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).double()
    for model, shape in ((make_network(), (3, 8, 8)), (flat, (5,))):
        adapted = fenchel.adapt(model, method="bn-alpha")
        assert adapted(torch.rand(1, *shape).double()).isfinite().all()
        assert adapted(torch.full((6, *shape), 0.5).double()).isfinite().all()


def test_without_batch_normalisation_it_says_that_nothing_happens(make_network):
    with pytest.warns(
        fenchel.AdaptationWarning, match="method 'bn-alpha' predicts with the source"
    ):
        fenchel.adapt(make_network("layer"), method="bn-alpha")


@pytest.mark.parametrize("alpha", [0, -0.1, 1.1, float("nan")])
def test_a_weight_that_is_none_is_refused(make_network, alpha):
    with pytest.raises(ValueError, match="0 < alpha <= 1"):
        fenchel.adapt(make_network(), method="bn-alpha", alpha=alpha)
