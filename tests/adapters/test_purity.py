"""The step is a pure function: nothing shared, nothing kept alive, no wait for the device."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass, field
from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import fenchel
from fenchel.losses import LOSSES
from fenchel.methods import FIELD_METHODS, STANDARD_METHODS
from fenchel.objectives import Objective

FURTHER_METHODS = (*FIELD_METHODS, "protected")


@pytest.mark.parametrize(
    ("method", "statistics"),
    [*product(STANDARD_METHODS, ["batch", 0.3]), *((method, None) for method in FURTHER_METHODS)],
)
def test_two_adapters_on_one_model_do_not_interfere(
    make_network, make_stream, adapt, method, statistics
):
    model = make_network()
    streams = make_stream(3, seed=1), make_stream(3, seed=2)
    apart = [adapt(make_network(), method, statistics=statistics) for _ in streams]
    expected = [
        [adapted(batch) for batch in stream] for adapted, stream in zip(apart, streams, strict=True)
    ]
    together = [adapt(model, method, statistics=statistics) for _ in streams]
    for index in range(3):
        for adapted, stream, outputs in zip(together, streams, expected, strict=True):
            assert torch.equal(adapted(stream[index]), outputs[index])


@pytest.mark.parametrize("optimizer", ["sgd", "adam", torch.optim.NAdam])
@pytest.mark.parametrize("method", ["bn", "conjugate", "memo"])
def test_swapping_the_states_of_two_streams_equals_two_adapters(
    make_network, make_stream, adapt, method, optimizer
):
    streams = make_stream(3, seed=1), make_stream(3, seed=2)
    settings = {"method": method, "optimizer": optimizer, "statistics": 0.3}
    apart = [adapt(make_network(), **settings) for _ in streams]
    shared = adapt(make_network(), **settings)
    states = [shared.state, shared.state]
    for index in range(3):
        for number, stream in enumerate(streams):
            shared.state = states[number]
            assert torch.equal(shared(stream[index]), apart[number](stream[index]))
            states[number] = shared.state


@dataclass(frozen=True)
class Jittered(Objective):
    """Sees two noisy views and keeps the noise for the test to look at."""

    drawn: list = field(default_factory=list)

    def value(self, h):
        return -h.var(-1).mean(0)

    def make_views(self, x, generator):
        noise = torch.rand(2, *x.shape, generator=generator)
        self.drawn.append(noise)
        return x + 0.1 * noise


def test_views_differ_from_batch_to_batch_and_repeat_after_a_reset(make_network, make_stream):
    batch = make_stream(1)[0]
    drawn = {}
    for seed in (0, 1):
        objective = Jittered()
        adapted = fenchel.adapt(make_network(), objective=objective, seed=seed)
        adapted(batch), adapted(batch)
        adapted.reset()
        adapted(batch)
        first, second, after_reset = objective.drawn
        assert not torch.equal(first, second)
        assert torch.equal(first, after_reset)
        drawn[seed] = first
    assert not torch.equal(drawn[0], drawn[1])


def test_a_state_may_be_stepped_from_again(make_network, make_stream, adapt):
    adapted = adapt(make_network(), optimizer="adam", statistics=0.3)
    batches = make_stream(2)
    adapted(batches[0])
    state = adapted.state
    copies = state.map(torch.clone)
    first = adapted(batches[1])
    adapted.state = state
    assert torch.equal(adapted(batches[1]), first)
    for name, tensor in state.flattened().items():
        assert torch.equal(tensor, copies.flattened()[name]), "tensors of a state never change"


@pytest.mark.parametrize("predict", ["before", "after"])
@pytest.mark.parametrize("method", [*STANDARD_METHODS, *FURTHER_METHODS])
def test_no_graph_outlives_the_step(make_network, make_stream, adapt, method, predict):
    adapted = adapt(make_network(), method, predict=predict, statistics=0.3, optimizer="adam")
    for batch in make_stream(2):
        output = adapted(batch)
        assert output.grad_fn is None
        assert not output.requires_grad
    for name, tensor in adapted.state.flattened().items():
        assert tensor.grad_fn is None, name
        assert not tensor.requires_grad, name


@pytest.mark.parametrize("optimizer", ["adam", torch.optim.AdamW])
def test_memory_stays_flat_over_many_steps(make_network, make_stream, adapt, optimizer):
    adapted = adapt(make_network(), optimizer=optimizer, statistics=0.3)
    batch = make_stream(1)[0]
    counts = []
    for step in range(30):
        adapted(batch)
        if step % 10 == 9:
            gc.collect()
            counts.append(sum(issubclass(type(thing), Tensor) for thing in gc.get_objects()))
    assert len(set(counts)) == 1, counts


def test_the_input_is_let_go(make_network, adapt):
    adapted = adapt(make_network())
    batch = torch.rand(20, 3, 8, 8)
    reference = weakref.ref(batch)
    adapted(batch)
    del batch
    gc.collect()
    assert reference() is None


class WritesIntoItsInput(nn.Module):
    def forward(self, x):
        return x.sub_(0.5).mul_(2.0)


class Counts(nn.Module):
    """Records in a buffer and computes with it, in evaluation mode too."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        return x * self.seen


def test_a_model_that_writes_into_its_input_harms_neither_caller_nor_second_pass(
    make_network, make_stream, adapt
):
    batches = make_stream(3)
    polite = adapt(make_network())
    rude = adapt(nn.Sequential(WritesIntoItsInput(), *make_network()))
    for batch in batches:
        held = batch.clone()
        assert torch.equal(rude(batch), polite((batch - 0.5) * 2.0))
        assert torch.equal(batch, held)


def test_a_model_that_writes_into_its_buffers_starts_every_pass_alike(
    make_network, make_stream, adapt, untouched
):
    model = nn.Sequential(Counts(), *make_network())
    batches = make_stream(3)
    plain = adapt(make_network())
    with untouched(model):
        adapted = adapt(model)
        for batch in batches:
            assert torch.equal(adapted(batch), plain(batch))
        adapted.disable()
        plain.disable()
        assert torch.equal(adapted(batches[0]), plain(batches[0]))


def test_the_users_hooks_see_every_pass_and_stay_in_place(make_network, make_stream, adapt):
    model = make_network()
    seen = []
    handle = model[4].register_forward_hook(lambda module, args, output: seen.append(output.shape))
    adapted = adapt(model)
    adapted(make_stream(1)[0])
    assert len(seen) == 2
    handle.remove()
    assert not model[4]._forward_hooks


class Recorder(TorchDispatchMode):
    """Notes the operations that make the host wait for a value on the device."""

    WAITING = ("_local_scalar_dense", "item", "is_nonzero", "equal")

    def __init__(self):
        super().__init__()
        self.waits, self.operations, self.before_first_wait = [], 0, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.operations += 1
        name = function.overloadpacket.__name__
        if name in self.WAITING:
            self.waits.append(name)
        if not self.waits:
            self.before_first_wait.append(name)
        return function(*args, **(kwargs or {}))


def test_the_recorder_notices_a_wait():
    for wait in (bool, int, Tensor.item):
        with Recorder() as recorder:
            wait(torch.ones(()) + 1)
        assert recorder.waits


# How many views, whether the bank is due, whether the energy has settled, what the monitor says: these must
# know on the host.
MUST_WAIT = ("cotta", "rotta", "lame", "protected")


@pytest.mark.parametrize(
    ("method", "optimizer", "statistics"),
    [
        *product(STANDARD_METHODS, ["sgd", "adam"], ["batch", "source", 0.3]),
        *((method, "adam", None) for method in FURTHER_METHODS if method not in MUST_WAIT),
    ],
)
def test_a_step_waits_for_the_device_once_to_learn_if_its_samples_are_finite(
    make_network, make_stream, adapt, method, optimizer, statistics
):
    adapted = adapt(
        make_network(), method, optimizer=optimizer, statistics=statistics, episodic=True
    )
    adapted(make_stream(1)[0])
    batch = make_stream(1)[0]
    with Recorder() as recorder:
        adapted(batch)
    assert recorder.operations > 10
    assert len(recorder.waits) == 1
    assert "convolution" not in recorder.before_first_wait, "it comes first"


@pytest.mark.filterwarnings("ignore::fenchel.adapters.UnboundedObjectiveWarning")
@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("method", ["conjugate", "protected"])  # the latter without its monitor
def test_no_closed_form_loss_waits_for_the_device(make_network, make_stream, name, method):
    model = make_network()
    if name == "exponential":
        model = nn.Sequential(*model, nn.Linear(4, 1))
    adapted = fenchel.adapt(model, method=method, trained_with=LOSSES[name]())
    batch = make_stream(1)[0]
    with Recorder() as recorder:
        adapted(batch)
    assert len(recorder.waits) == 1
