"""Optimisers as pure functions, held against torch.optim."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import pytest
import torch

import fenchel
from fenchel.adapters import SGD, Adam, TorchOptimizer

SHAPES = {"a.weight": (5,), "a.bias": (3, 2), "scale": ()}
TORCH_OPTIMIZERS = {
    "sgd": partial(torch.optim.SGD, lr=0.1, momentum=0.9, dampening=0.3),
    "plain-sgd": partial(torch.optim.SGD, lr=0.1),
    "adam": partial(torch.optim.Adam, lr=0.01),
    "amsgrad": partial(torch.optim.AdamW, lr=0.01, amsgrad=True, weight_decay=0.1),
    "rmsprop": partial(torch.optim.RMSprop, lr=0.01, centered=True, momentum=0.5),
    "adagrad": partial(torch.optim.Adagrad, lr=0.1, initial_accumulator_value=0.5),
    "adadelta": partial(torch.optim.Adadelta, lr=0.5),
    "adamax": partial(torch.optim.Adamax, lr=0.01),
    "nadam": partial(torch.optim.NAdam, lr=0.01),
    "radam": partial(torch.optim.RAdam, lr=0.01),
    "asgd": partial(torch.optim.ASGD, lr=0.1),
    "rprop": partial(torch.optim.Rprop, lr=0.01),
    "adafactor": partial(torch.optim.Adafactor, lr=0.01),
}


def starting_point(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        for name, shape in SHAPES.items()
    }


def gradients_of_step(step, dtype=torch.float32):
    """Gradients of very different sizes, as adaptation meets them."""
    generator = torch.Generator().manual_seed(100 + step)
    scale = 10.0 ** ((step % 5) - 4)
    return {
        name: (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype)
        for name, shape in SHAPES.items()
    }


def drive(optimizer, steps, dtype=torch.float32):
    """The parameters after some pure updates."""
    parameters = starting_point(dtype)
    moments = optimizer.start(parameters)
    for step in range(steps):
        parameters, moments = optimizer.update(parameters, gradients_of_step(step, dtype), moments)
    return parameters


def drive_directly(make, steps, dtype=torch.float32):
    leaves = {name: torch.nn.Parameter(value) for name, value in starting_point(dtype).items()}
    optimizer = make(list(leaves.values()))
    for step in range(steps):
        for name, gradient in gradients_of_step(step, dtype).items():
            leaves[name].grad = gradient
        optimizer.step()
    return {name: leaf.detach() for name, leaf in leaves.items()}


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-12)], ids=str
)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SGD(learning_rate=0.01), partial(torch.optim.SGD, lr=0.01, momentum=0.9, nesterov=True)),
        (
            SGD(learning_rate=0.01, nesterov=False),
            partial(torch.optim.SGD, lr=0.01, momentum=0.9),
        ),
        (
            SGD(learning_rate=0.01, momentum=0.0, nesterov=False),
            partial(torch.optim.SGD, lr=0.01),
        ),
        (Adam(learning_rate=0.01), partial(torch.optim.Adam, lr=0.01, betas=(0.9, 0.999))),
        (
            Adam(learning_rate=0.01, betas=(0.5, 0.9), epsilon=1e-3),
            partial(torch.optim.Adam, lr=0.01, betas=(0.5, 0.9), eps=1e-3),
        ),
    ],
    ids=repr,
)
def test_named_optimizers_equal_torch_optim_over_300_steps(ours, theirs, dtype, tolerance):
    for steps in (1, 2, 300):
        expected = drive_directly(theirs, steps, dtype)
        for name, value in drive(ours, steps, dtype).items():
            assert value.dtype == dtype
            torch.testing.assert_close(value, expected[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", TORCH_OPTIMIZERS)
def test_a_torch_optimizer_driven_purely_equals_it_driven_directly(name):
    make = TORCH_OPTIMIZERS[name]
    expected = drive_directly(make, 25)
    for key, value in drive(TorchOptimizer(factory=make), 25).items():
        assert torch.equal(value, expected[key]), key


def test_parameter_groups_of_a_torch_optimizer_are_respected():
    def make(parameters):
        first, *others = parameters
        groups = [{"params": [first], "lr": 1.0}, {"params": others}]
        return torch.optim.SGD(groups, lr=0.01)

    expected = drive_directly(make, 5)
    for key, value in drive(TorchOptimizer(factory=make), 5).items():
        assert torch.equal(value, expected[key]), key


@pytest.mark.parametrize(
    "optimizer", [SGD(), Adam(), TorchOptimizer(factory=TORCH_OPTIMIZERS["adam"])], ids=repr
)
def test_an_update_modifies_nothing_it_was_given(optimizer):
    parameters = starting_point()
    moments = optimizer.start(parameters)
    parameters, moments = optimizer.update(parameters, gradients_of_step(0), moments)
    gradients = gradients_of_step(1)
    given = [parameters, gradients, moments]
    before = [{name: value.clone() for name, value in tensors.items()} for tensors in given]
    first = optimizer.update(parameters, gradients, moments)
    second = optimizer.update(parameters, gradients, moments)
    for tensors, copies in zip([*given, *first], [*before, *second], strict=True):
        assert all(torch.equal(tensors[name], copies[name]) for name in copies)


@dataclass(frozen=True)
class Sulking(fenchel.Objective):
    """An entropy that is infinite as often as it was asked to be."""

    left: list[str] = field(default_factory=list)

    def value(self, h):
        entropy = -(h.softmax(-1) * h.log_softmax(-1)).sum(-1)
        return entropy * float("inf") if self.left and self.left.pop() else entropy


@pytest.mark.parametrize("name", TORCH_OPTIMIZERS)
def test_a_skipped_first_update_leaves_a_torch_optimizer_as_new(
    make_network, make_stream, adapt, name
):
    batches = make_stream(3)
    sulking = Sulking()
    one, other = (
        fenchel.adapt(
            make_network(),
            objective=sulking,
            optimizer=TORCH_OPTIMIZERS[name],
            predict="before",
        )
        for _ in range(2)
    )
    sulking.left.append("one infinite value")
    one(batches[0])
    for batch in batches:
        assert torch.equal(one(batch), other(batch))
    assert one.health().skipped_non_finite == 1


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", [SGD, Adam])
def test_a_learning_rate_that_cannot_be_is_refused(kind, rate):
    with pytest.raises(ValueError, match="finite learning_rate >= 0"):
        kind(learning_rate=rate)


def test_an_optimizer_that_needs_a_closure_is_refused_before_the_stream(make_network, adapt):
    with pytest.raises(TypeError, match="LBFGS needs a closure"):
        adapt(make_network(), optimizer=torch.optim.LBFGS)


def test_a_factory_that_makes_no_optimizer_is_refused_before_the_stream(make_network, adapt):
    with pytest.raises(TypeError, match="the callable returned list"):
        adapt(make_network(), optimizer=lambda parameters: list(parameters))


def test_adam_counts_on_in_float32_after_the_adapter_was_halved():
    optimizer = Adam(learning_rate=0.01)
    parameters = {"a": torch.zeros(3, dtype=torch.float16)}
    moments = optimizer.start(parameters)
    moments = {name: value.half() for name, value in moments.items()} | {
        "step": torch.tensor(2048.0, dtype=torch.float16)
    }
    for _ in range(2):
        parameters, moments = optimizer.update(parameters, {"a": torch.ones(3).half()}, moments)
    assert moments["step"] == 2050
    assert parameters["a"].dtype == torch.float16
