"""The meta-gradient is exact: against finite differences and against plain double backward."""

import dataclasses

import pytest
import torch
from torch.func import functional_call

from fenchel.adapters import SGD, Adam, Adapter, Inputs, TorchOptimizer
from fenchel.adapters.normalization import skeleton, use_batch_statistics
from fenchel.methods import as_method
from fenchel.objectives import Entropy
from fenchel.train.meta.gradient import meta_gradient

OPTIMIZERS = [
    SGD(learning_rate=0.05, momentum=0.0, nesterov=False),
    SGD(learning_rate=0.05, momentum=0.9, nesterov=False),
    SGD(learning_rate=0.05),
    Adam(learning_rate=0.01),
]
every_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)


def gradient_of(scene, order):
    return meta_gradient(
        scene.adapter.step,
        scene.adapter.state,
        scene.inputs,
        Inputs((scene.task_inputs,), {}),
        scene.task_loss,
        order=order,
    )


def by_double_backward(scene):
    """The task loss as one graph from the loss network to the adapted model, and its gradient."""
    adapter = scene.adapter
    module = use_batch_statistics(skeleton(adapter.model))
    objective, optimizer = adapter.settings.objective, adapter.settings.optimizer
    parameters = {n: p.requires_grad_() for n, p in adapter.state.parameters.items()}
    moments = adapter.state.moments
    for batch in scene.batches:
        value = objective(functional_call(module, parameters, (batch,))).mean()
        found = torch.autograd.grad(value, list(parameters.values()), create_graph=True)
        gradients = dict(zip(parameters, found, strict=True))
        parameters, moments = optimizer.update(parameters, gradients, moments)
    loss = scene.task_loss(functional_call(module, parameters, (scene.task_inputs,)))
    weights = list(scene.network.parameters())
    return loss, torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)


def deployed_loss(scene):
    """The task loss after the adapter itself has met the batches, as a number."""
    adapter = Adapter(scene.adapter.model, scene.adapter.settings)
    adapter.state = scene.adapter.state
    for batch in scene.batches:
        adapter(batch)
    adapter.freeze()
    return scene.task_loss(adapter(scene.task_inputs)).item()


@every_optimizer
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_second_order_equals_double_backward(make_scene, optimizer, steps):
    scene = make_scene(optimizer, batches=steps)
    found = gradient_of(scene, "second")
    loss, expected = by_double_backward(scene)
    torch.testing.assert_close(found.task_loss, loss.detach(), rtol=1e-12, atol=0)
    largest = max(value.abs().max() for value in expected)
    assert largest > 1e-8
    for ours, theirs in zip(found.gradients, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-12 * float(largest))


@every_optimizer
@pytest.mark.parametrize("steps", [1, 2])
def test_second_order_equals_finite_differences_of_the_deployed_adapter(
    make_scene, optimizer, steps
):
    scene = make_scene(optimizer, batches=steps)
    found = gradient_of(scene, "second").gradients
    torch.manual_seed(1)
    weights = list(scene.network.parameters())
    direction = [torch.randn_like(weight) for weight in weights]
    expected = sum((g * d).sum().item() for g, d in zip(found, direction, strict=True))
    size, losses = 1e-6, []  # small enough to cross no kink of the network
    for sign in (1, -2, 1):
        with torch.no_grad():
            for weight, change in zip(weights, direction, strict=True):
                weight += sign * size * change
        losses.append(deployed_loss(scene))
    slope = (losses[0] - losses[1]) / (2 * size)
    assert losses[2] == pytest.approx(deployed_loss(scene))
    assert abs(slope) > 1e-7
    assert slope == pytest.approx(expected, rel=2e-5)


@every_optimizer
def test_the_orders_agree_over_one_step_and_differ_over_two(make_scene, optimizer):
    for steps, same in ((1, True), (2, False)):
        scene = make_scene(optimizer, batches=steps)
        first, second = (gradient_of(scene, order).gradients for order in ("first", "second"))
        pairs = zip(first, second, strict=True)
        assert all(torch.equal(ours, theirs) for ours, theirs in pairs) == same


@every_optimizer
def test_the_inner_steps_are_those_of_the_adapter(make_scene, optimizer):
    scene = make_scene(optimizer, batches=2)
    state = gradient_of(scene, "first").state
    for batch in scene.batches:
        scene.adapter(batch)
    assert state.step == scene.adapter.state.step
    for group in ("parameters", "moments"):
        for name, value in getattr(scene.adapter.state, group).items():
            assert torch.equal(getattr(state, group)[name], value), name


def test_nothing_is_left_in_the_network_or_the_state(make_scene):
    scene = make_scene(SGD(learning_rate=0.05))
    before = {name: value.clone() for name, value in scene.adapter.state.parameters.items()}
    outcome = gradient_of(scene, "first")
    assert all(weight.grad is None for weight in scene.network.parameters())
    assert not any(value.requires_grad for value in outcome.state.flattened().values())
    assert not outcome.task_loss.requires_grad
    assert all(torch.equal(scene.adapter.state.parameters[n], v) for n, v in before.items())


def test_adam_survives_parameters_that_no_sample_reaches(make_scene):
    scene = make_scene(Adam(learning_rate=0.01), warm_up=0)
    with torch.no_grad():
        scene.adapter.model[4].weight[:, 0] = 0  # a channel that nobody reads
    scene.adapter.reset()
    outcome = gradient_of(scene, "second")
    assert all(value.isfinite().all() for value in outcome.gradients)
    assert any(value.abs().max() > 0 for value in outcome.gradients)


def test_other_objectives_optimisers_and_orders_are_refused(make_scene):
    scene = make_scene(SGD(learning_rate=0.05))
    with pytest.raises(ValueError, match=r"'third'.*Known: first, second"):
        gradient_of(scene, "third")
    settings = scene.adapter.settings
    scene.adapter = Adapter(
        scene.adapter.model, dataclasses.replace(settings, method=as_method(Entropy()))
    )
    with pytest.raises(TypeError, match="needs a LearnedObjective"):
        gradient_of(scene, "first")
    torch_sgd = TorchOptimizer(factory=lambda p: torch.optim.SGD(p, lr=0.1))
    scene.adapter = Adapter(scene.adapter.model, dataclasses.replace(settings, optimizer=torch_sgd))
    with pytest.raises(TypeError, match="'sgd' or 'adam'; got TorchOptimizer"):
        gradient_of(scene, "first")
