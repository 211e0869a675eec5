"""What passes offer to methods: the source as it is, statistics of a method's own, and no pass twice."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn

import fenchel


def looked_at(model, look, batch, **settings):
    """What `look(passes, state, batch)` returns in the first update on a batch."""
    found = []

    @dataclass(frozen=True, kw_only=True)
    class Looking(fenchel.Method):
        def update(self, passes, state, batch):
            found.append(look(passes, state, batch))
            return state

    adapted = fenchel.adapt(model, method=Looking(), **settings)
    adapted(batch)
    return found[0]


@torch.no_grad()
def test_the_source_predicts_with_statistics_of_its_own(make_network, make_stream):
    model, batch = make_network().eval(), make_stream(1)[0]
    logits, adapting = looked_at(
        model, lambda p, s, b: (p.source_logits(b), p.logits(p.source, b)), batch
    )
    torch.testing.assert_close(logits, model(batch))
    assert not torch.allclose(adapting, logits), "the adapter's are the batch's"


@torch.no_grad()
def test_a_method_may_bring_running_statistics_of_its_own(make_network, make_stream):
    model, batch = make_network().eval(), make_stream(1)[0]

    def look(passes, state, batch):
        statistics = {name: value + 1 for name, value in passes.source_statistics.items()}
        return passes.logits({**state.parameters, **statistics}, batch)

    found = looked_at(model, look, batch, statistics="source")
    for layer in (model[1], model[4]):
        layer.running_mean += 1
        layer.running_var += 1
    torch.testing.assert_close(found, model(batch))


def test_a_batch_enters_running_statistics_as_in_training_mode(make_network, make_stream):
    """With the weight 1 that is batch normalisation in training mode, gradients included."""
    model, batch = make_network().eval(), make_stream(1)[0]

    def look(passes, state, batch):
        seen = {}

        def loss(theta):
            logits, statistics = passes.mixing_logits(theta, batch, 1.0)
            seen.update(statistics)
            return logits.square().sum()

        return passes.gradient(loss, state.parameters), seen

    gradient, statistics = looked_at(model, look, batch, statistics="source")
    for layer in (model[1], model[4]):
        layer.train()
        layer.momentum = 1.0
    model(batch).square().sum().backward()
    for name, value in gradient.tensors.items():
        torch.testing.assert_close(value, model.get_parameter(name).grad, rtol=1e-3, atol=1e-3)
    for index, values in ((1, 64), (4, 9)):
        mean, unbiased = model[index].running_mean, model[index].running_var
        count = len(batch) * values
        torch.testing.assert_close(statistics[f"{index}.running_mean"], mean)
        biased = unbiased * (count - 1) / count
        torch.testing.assert_close(statistics[f"{index}.running_var"], biased)


def test_no_hook_is_left_behind_by_a_pass_that_fails(make_network, make_stream):
    hooks = []

    def look(passes, state, batch):
        with pytest.raises(RuntimeError):
            passes.mixing_logits({}, batch.with_samples(torch.rand(2, 5, 8, 8)), 0.5)
        with pytest.raises(RuntimeError):
            passes.features({}, batch.with_samples(torch.rand(2, 5, 8, 8)))
        hooks.extend(len(m._forward_pre_hooks) for m in passes.network.module.modules())

    looked_at(make_network(), look, make_stream(1)[0])
    assert hooks
    assert not any(hooks)


def test_features_and_weights_of_the_head_make_the_logits_in_one_pass(make_network, make_stream):
    model, calls = make_network(), []
    model[0].register_forward_hook(lambda *_: calls.append(1))

    def look(passes, state, batch):
        calls.clear()
        features, logits = passes.features(state.parameters, batch)
        weight, bias = passes.head_weights(state.parameters, batch)
        output = passes.output(dict(state.parameters), batch)
        return features @ weight.T + bias, logits, output, len(calls)

    made, logits, output, passes = looked_at(model, look, make_stream(1)[0])
    torch.testing.assert_close(made, logits)
    assert torch.equal(logits, output)
    assert passes == 1


def test_another_batch_or_other_parameters_are_another_pass(make_network, make_stream):
    def look(passes, state, batch):
        first, _ = passes.features(state.parameters, batch)
        moved = {name: value + 0.1 for name, value in state.parameters.items()}
        other, _ = passes.features(moved, batch)
        half = batch.with_samples(batch.samples()[:10])
        return first, other, passes.features(state.parameters, half)[0]

    first, other, half = looked_at(make_network(), look, make_stream(1)[0], statistics="source")
    assert not torch.equal(first, other)
    torch.testing.assert_close(half, first[:10])


def test_a_model_that_is_the_head_itself_has_weights_too():
    model, batch = nn.Linear(6, 3), torch.rand(5, 6)
    weight, bias = looked_at(model, lambda p, s, b: p.head_weights({}, b), batch, parameters="all")
    assert torch.equal(weight, model.weight)
    assert torch.equal(bias, model.bias)
