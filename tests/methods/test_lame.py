"""LAME against the iteration written out in plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import fenchel
from fenchel.names import UnknownNameError


def lame_in_plain_loops(model, batch, neighbours, affinity):
    """Predictions of a batch, sample by sample; the last layer of `model` is the head."""
    with torch.no_grad():
        features = model[:-1](batch)
        prediction = model(batch).softmax(-1)
    count = len(prediction)
    directions = [feature / feature.norm() for feature in features]
    distance = [[float((a - b).norm()) for b in directions] for a in directions]
    nearest = [
        sorted((j for j in range(count) if j != i), key=lambda j, i=i: distance[i][j])[:neighbours]
        for i in range(count)
    ]
    if affinity == "knn":
        kernel = [[float(j in nearest[i]) for j in range(count)] for i in range(count)]
    else:
        scale = sum(distance[i][nearest[i][-1]] for i in range(count)) / count
        kernel = [[math.exp(-((d / scale) ** 2) / 2) for d in row] for row in distance]
    kernel = torch.tensor(kernel, dtype=torch.float64).reshape(count, count)
    y, last = prediction, math.inf
    for step in range(100):
        pull = kernel @ y
        weighed = prediction * pull.exp()
        y = weighed / weighed.sum(-1, keepdim=True)
        energy = float((y * (y.log() - prediction.log() - pull)).sum())
        if step > 1 and abs(energy - last) <= 1e-8 * abs(last):
            break
        last = energy
    return y, step


@pytest.mark.parametrize(("neighbours", "affinity"), [(5, "knn"), (2, "knn"), (3, "rbf")])
def test_it_is_the_iteration_over_a_stream(network, make_stream, neighbours, affinity):
    adapted = fenchel.adapt(network, method="lame", neighbours=neighbours, affinity=affinity)
    steps = set()
    for batch in make_stream(20):
        expected, taken = lame_in_plain_loops(network, batch, neighbours, affinity)
        torch.testing.assert_close(adapted(batch).softmax(-1), expected, rtol=0, atol=1e-8)
        steps.add(taken)
    assert max(steps) < 99, "the energy decides when it ends"
    with torch.no_grad():
        assert (network(batch).softmax(-1) - expected).abs().max() > 0.01


def test_neighbours_settle_on_one_class(make_network, make_stream):
    model, batch = make_network(), make_stream(1)[0]
    batch = torch.cat([batch[:1] + 0.01 * torch.rand(8, 3, 8, 8).double(), batch[1:2]])
    with torch.no_grad():
        alone = model(batch).softmax(-1)[:8]
    together = fenchel.adapt(model, method="lame")(batch).softmax(-1)[:8]
    assert together.var(0).sum() < alone.var(0).sum()
    assert together.amax(-1).min() > alone.amax(-1).max()


def test_one_sample_keeps_its_prediction_and_equal_ones_share_theirs(network, make_stream):
    adapted = fenchel.adapt(network, method="lame")
    sample = make_stream(1)[0][:1]
    with torch.no_grad():
        expected = network(sample).log_softmax(-1)
    torch.testing.assert_close(adapted(sample), expected, rtol=0, atol=1e-12)
    for affinity in ("knn", "rbf"):
        adapted = fenchel.adapt(network, method="lame", affinity=affinity)
        for batch in (sample.expand(6, -1, -1, -1), torch.zeros(6, 3, 8, 8).double()):
            output = adapted(batch)
            assert output.isfinite().all()
            torch.testing.assert_close(output, output[:1].expand_as(output), rtol=0, atol=1e-9)


def test_it_takes_one_forward_pass_and_moves_nothing(make_network, make_stream):
    model, calls = make_network(), []
    model[0].register_forward_hook(lambda *_: calls.append(1))
    adapted = fenchel.adapt(model, method="lame")
    for batch in make_stream(3):
        adapted(batch)
    assert len(calls) == 3
    assert adapted.state.parameters == adapted.state.memory == {}


def test_statistics_are_the_sources_unless_told_otherwise(make_network, make_stream):
    model, batch = make_network(), make_stream(1, 20)[0]
    assert fenchel.adapt(model, method="lame").settings.statistics == "source"
    other = fenchel.adapt(model, method="lame", statistics="batch")
    assert not torch.equal(other(batch), fenchel.adapt(model, method="lame")(batch))


def test_what_it_cannot_predict_is_refused(make_network, make_stream):
    batch = make_stream(1)[0]
    with pytest.raises(ValueError, match="one class out of C"):
        fenchel.adapt(make_network(), method="lame", trained_with="binary-cross-entropy")
    ready = fenchel.adapt(make_network(), method="lame").settings.method
    with pytest.raises(ValueError, match="one class out of C"):
        fenchel.adapt(make_network(), method=ready, trained_with="exponential")
    with pytest.raises(ValueError, match="scores of two classes or more"):
        fenchel.adapt(make_network(classes=1), method="lame")(batch)
    headless = nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten()).double()
    with pytest.raises(ValueError, match="no such layer ran"):
        fenchel.adapt(headless, method="lame")(batch)
    dense = nn.Sequential(nn.Flatten(2), nn.Linear(64, 4)).double()
    with pytest.raises(ValueError, match=r"got features of shape \(10, 3, 64\)"):
        fenchel.adapt(dense, method="lame", dim=-1)(batch)
    with pytest.raises(UnknownNameError, match="layer of the model"):
        fenchel.adapt(make_network(), method="lame", features="head")
    with pytest.raises(ValueError, match="affinity 'knn' or 'rbf'"):
        fenchel.adapt(make_network(), method="lame", affinity="cosine")
    with pytest.raises(ValueError, match="at least one neighbour"):
        fenchel.adapt(make_network(), method="lame", neighbours=0)
