"""T3A against lists of features in plain Python."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fenchel


class PlainTemplates:
    """All supports of every class in a list, the surest first, cut after `size`."""

    def __init__(self, model, size):
        self.model, self.size = model, size
        weight = model[-1].weight.detach()
        self.lists = [[] for _ in weight]
        self.add(weight)

    @torch.no_grad()
    def add(self, features):
        for feature in features:
            scores = self.model[-1](feature)
            p = scores.softmax(-1)
            entropy = float(-(p * p.log()).sum())
            supports = self.lists[int(scores.argmax())]
            supports.append((entropy, feature))
            supports.sort(key=lambda pair: pair[0])
            del supports[self.size :]

    @torch.no_grad()
    def predict(self, features):
        columns = []
        for supports in self.lists:
            total = sum((f / f.norm() for _, f in supports), torch.zeros_like(features[0]))
            columns.append(features @ (total / max(float(total.norm()), 1e-12)))
        return torch.stack(columns, -1)


@pytest.mark.parametrize("supports", [2, 6, 100])
@pytest.mark.parametrize("predict", ["after", "before"])
def test_it_is_the_lists_over_a_stream(network, make_stream, supports, predict):
    adapted = fenchel.adapt(network, method="t3a", supports=supports, predict=predict)
    plain = PlainTemplates(network, supports)
    for batch in make_stream(20):
        with torch.no_grad():
            features = network[:-1](batch)
        if predict == "before":
            expected = plain.predict(features)
        plain.add(features)
        if predict == "after":
            expected = plain.predict(features)
        torch.testing.assert_close(adapted(batch), expected, rtol=0, atol=1e-8)
    counts = adapted.state.memory["counts"].tolist()
    assert counts == [len(each) for each in plain.lists]
    for theirs, ours in zip(plain.lists, adapted.state.memory["entropies"], strict=True):
        assert ours[: len(theirs)].tolist() == pytest.approx([entropy for entropy, _ in theirs])
    with torch.no_grad():
        first = PlainTemplates(network, supports).predict(features)
    assert (first - expected).abs().max() > 1e-3, "the templates have moved"


def test_before_the_first_batch_the_templates_are_the_rows_of_the_head(make_network, make_stream):
    model, batch = make_network(), make_stream(1)[0]
    adapted = fenchel.adapt(model, method="t3a")
    adapted.freeze()
    with torch.no_grad():
        features, weight = model[:-1](batch), model[-1].weight
        owners = model[-1](weight).argmax(-1)
        assert sorted(owners.tolist()) == [0, 1, 2, 3, 4], "else two rows are one class's"
        expected = features @ (weight / weight.norm(dim=-1, keepdim=True)).T
    torch.testing.assert_close(adapted(batch)[:, owners], expected, rtol=0, atol=1e-10)


def test_a_head_without_biases_and_one_that_is_named(make_stream):
    class TwoHeads(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.body, self.main = nn.Flatten(), nn.Linear(192, 4, bias=False)
            self.extra = nn.Linear(4, 2)

        def forward(self, x):
            logits = self.main(self.body(x))
            return logits, self.extra(logits)

    model, batch = TwoHeads().double(), make_stream(1)[0]
    one = fenchel.adapt(model, method="t3a", logits=0, features="main")(batch)
    other = fenchel.adapt(nn.Sequential(model.body, model.main), method="t3a")(batch)
    assert torch.equal(one[0], other)
    assert torch.equal(one[1], model(batch)[1])
    with pytest.raises(ValueError, match=r"linear head with one row .* 'extra' is Linear"):
        fenchel.adapt(model, method="t3a", logits=0)(batch)


def test_it_takes_one_forward_pass(make_network, make_stream):
    model, calls = make_network(), []
    model[0].register_forward_hook(lambda *_: calls.append(1))
    adapted = fenchel.adapt(model, method="t3a")
    for batch in make_stream(3):
        adapted(batch)
    assert len(calls) == 3


def test_one_sample_and_constant_batches_are_predicted(network):
    adapted = fenchel.adapt(network, method="t3a", supports=3)
    assert adapted(torch.rand(1, 3, 8, 8).double()).isfinite().all()
    for value in (0.0, 1.0, 0.5):
        assert adapted(torch.full((9, 3, 8, 8), value).double()).isfinite().all()
    assert adapted.state.memory["counts"].max() == 3


def test_what_it_cannot_predict_is_refused(make_network, make_stream):
    with pytest.raises(ValueError, match="one class out of C"):
        fenchel.adapt(make_network(), method="t3a", trained_with="binary-cross-entropy")
    with pytest.raises(ValueError, match="scores of two classes or more"):
        fenchel.adapt(make_network(classes=1), method="t3a")(make_stream(1)[0])
    headless = nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten()).double()
    with pytest.raises(ValueError, match="no such layer ran"):
        fenchel.adapt(headless, method="t3a")(make_stream(1)[0])
    with pytest.raises(ValueError, match=r"features of shape \(10, 3, 8, 8\)"):
        fenchel.adapt(headless, method="t3a", features="0")(make_stream(1)[0])
    with pytest.raises(ValueError, match="at least one support"):
        fenchel.adapt(make_network(), method="t3a", supports=0)
