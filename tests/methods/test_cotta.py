"""CoTTA against three networks in plain torch: the student, its teacher, and the source."""

from __future__ import annotations

import copy

import plain_torch
import pytest
import torch
from plain_labels import label, loss_at
from torch import nn

import fenchel
from fenchel.objectives.strong_view import strong_view

SEED = 3


def cotta_in_plain_torch(model, batches, *, loss, views, confidence, restore, momentum, rate):
    """Predictions batch by batch; afterwards `student` and `teacher` hold what became of them."""
    source = copy.deepcopy(model).eval()
    student, teacher = (plain_torch.in_place(copy.deepcopy(model)) for _ in range(2))
    # Adam would divide gradients that are nothing but rounding by themselves.
    optimizer = torch.optim.SGD(student.parameters(), lr=rate, momentum=0.9, nesterov=True)
    outputs, averaged = [], 0
    for number, batch in enumerate(batches):
        generator = torch.Generator().manual_seed(SEED * 1_000_003 + number)
        with torch.no_grad():
            if source(batch).softmax(-1).max(-1).values.mean() < confidence:
                seen = [teacher(strong_view(batch, generator)) for _ in range(views)]
                taught = torch.stack(seen).mean(0)
                averaged += 1
            else:
                taught = teacher(batch)
        outputs.append(taught)
        value = loss_at(loss, student(batch), label(loss, taught)).mean()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        with torch.no_grad():
            for theirs, its in zip(teacher.parameters(), student.parameters(), strict=True):
                theirs.copy_(momentum * theirs + (1 - momentum) * its)
            for moved, old in zip(student.parameters(), source.parameters(), strict=True):
                drawn = torch.rand(moved.shape, generator=generator) < restore
                moved[drawn] = old[drawn]
    return outputs, student, teacher, averaged


def adapted_by_cotta(model, loss, **options):
    settings = {"seed": SEED, "input_range": (0, 1), **options}
    return fenchel.adapt(model, method="cotta", trained_with=loss, **settings)


@pytest.mark.parametrize("loss", ["cross-entropy", "poly:epsilon=2", "squared"])
def test_it_is_three_networks_over_a_stream(network, make_stream, loss):
    batches = make_stream(20, 16)
    with torch.no_grad():  # about half of the batches are averaged over views
        sure = [network(batch).softmax(-1).max(-1).values.mean() for batch in batches]
    options = {"views": 3, "confidence": float(torch.stack(sure).median()), "restore": 0.05}
    options["momentum"] = 0.9
    expected, student, teacher, averaged = cotta_in_plain_torch(
        network, batches, loss=loss, rate=0.02, **options
    )
    assert 3 < averaged < 17
    adapted = adapted_by_cotta(network, loss, learning_rate=0.02, **options)
    outputs = [adapted(batch) for batch in batches]
    plain_torch.agree(adapted, outputs, student, expected)
    for name, value in teacher.named_parameters():
        ours = adapted.state.memory[name]
        torch.testing.assert_close(ours, value.detach(), rtol=1e-8, atol=1e-8)
    assert set(adapted.state.parameters) == {name for name, _ in network.named_parameters()}
    with torch.no_grad():
        assert (outputs[-1] - network(batches[-1])).abs().max() > 0.01


def test_the_published_form_is_there_for_every_loss(make_network, make_stream):
    model, batches = make_network(), make_stream(5, 16)
    options = {"views": 2, "learning_rate": 0.01, "momentum": 0.5}
    adapters = [
        adapted_by_cotta(model, "cross-entropy", **options),
        adapted_by_cotta(model, "poly:epsilon=2", objective="entropy", **options),
        adapted_by_cotta(model, "poly:epsilon=2", **options),
    ]
    outputs = [[adapted(batch) for batch in batches][-1] for adapted in adapters]
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[1], outputs[2])


@pytest.mark.parametrize("loss", ["cross-entropy", "poly:epsilon=2", "squared", "focal:gamma=2"])
def test_who_agrees_with_the_teacher_has_nothing_to_learn(make_network, make_stream, loss):
    model = make_network("layer")
    adapted = adapted_by_cotta(
        model, loss, optimizer="sgd", learning_rate=1.0, confidence=0.0, restore=0.0
    )
    adapted(make_stream(1)[0])
    for name, value in adapted.state.parameters.items():
        torch.testing.assert_close(value, model.get_parameter(name), rtol=0, atol=1e-12)


def test_it_takes_as_many_passes_as_the_formula_needs(make_network, make_stream):
    model, calls = make_network(), []
    model[0].register_forward_hook(lambda *_: calls.append(1))
    batches = make_stream(2, 16)
    for confidence, passes in ((1.0, 1 + 1 + 5), (0.0, 1 + 1 + 1)):
        adapted = adapted_by_cotta(model, "cross-entropy", views=5, confidence=confidence)
        adapted(batches[0])
        calls.clear()
        adapted(batches[1])
        assert len(calls) == passes


def test_every_weight_may_return_to_the_source(make_network, make_stream):
    model = make_network()
    adapted = adapted_by_cotta(model, "cross-entropy", views=1, restore=1.0, momentum=0.5)
    for batch in make_stream(3, 16):
        adapted(batch)
    for name, value in adapted.state.parameters.items():
        assert torch.equal(value, model.get_parameter(name))
    assert not torch.equal(adapted.state.memory["0.weight"], model[0].weight), "the teacher stays"


def test_what_else_the_model_returns_is_that_of_the_batch(make_network, make_stream):
    class WithMean(nn.Module):
        def __init__(self, body):
            super().__init__()
            self.body = body

        def forward(self, x):
            return {"logits": self.body(x), "mean": x.mean((1, 2, 3))}

    model, batch = make_network(), make_stream(1, 16)[0]
    plain = adapted_by_cotta(model, "cross-entropy", views=2, confidence=1.0)(batch)
    output = adapted_by_cotta(WithMean(model), "cross-entropy", views=2, confidence=1.0)(batch)
    assert torch.equal(output["logits"], plain)
    assert torch.equal(output["mean"], batch.mean((1, 2, 3)))


@pytest.mark.filterwarnings("ignore::fenchel.AdaptationWarning")
def test_one_sample_and_constant_batches_are_predicted(network):
    adapted = adapted_by_cotta(network, "cross-entropy", views=2, confidence=1.0)
    for batch in (torch.rand(1, 3, 8, 8), torch.zeros(4, 3, 8, 8), torch.full((4, 3, 8, 8), 0.5)):
        assert adapted(batch.double()).isfinite().all()
    assert adapted.health().updates == 3
    adapted.freeze()
    batch = torch.rand(2, 3, 8, 8).double()
    assert torch.equal(adapted(batch), adapted(batch)), "the views of a frozen adapter repeat"


def test_the_adapted_model_is_the_teacher(make_network, make_stream):
    adapted = adapted_by_cotta(make_network("layer"), "poly", views=1, confidence=1.0, momentum=0.5)
    for batch in make_stream(3):
        adapted(batch)
    twin = adapted.adapted_model()
    for name, value in twin.named_parameters():
        assert torch.equal(value, adapted.state.memory[name])
        assert not torch.equal(value, adapted.state.parameters[name])


def test_what_it_cannot_learn_from_is_refused(make_network, make_stream):
    model, batch = make_network(), make_stream(1, 16)[0]
    with pytest.raises(ValueError, match="range of the input's pixels"):
        adapted_by_cotta(model, "cross-entropy", input_range=None)
    with pytest.raises(ValueError, match="labels of another kind"):
        adapted_by_cotta(model, "binary-cross-entropy")
    with pytest.raises(ValueError, match="two classes or more"):
        adapted_by_cotta(make_network(classes=1), "cross-entropy")(batch)
    with pytest.raises(ValueError, match="a teacher gives labels"):
        adapted_by_cotta(model, "cross-entropy", objective="robust")
    dense = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).double()
    with pytest.raises(ValueError, match="one prediction per image"):
        adapted_by_cotta(dense, "cross-entropy", dim=1)(batch)
    flat = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 3)).double()
    with pytest.raises(ValueError, match="float images"):
        adapted_by_cotta(flat, "cross-entropy", confidence=1.0)(torch.rand(8, 5).double())
    for option in ({"views": 0}, {"restore": 1.5}, {"momentum": -0.1}, {"confidence": 2}):
        with pytest.raises(ValueError, match="cotta needs"):
            adapted_by_cotta(model, "cross-entropy", **option)
