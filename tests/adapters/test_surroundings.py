"""The adapter under inference mode, autocast, other layouts and precisions, and torch.compile."""

from __future__ import annotations

import copy
import gc
import pickle
from itertools import product

import pytest
import torch
from torch import Tensor, nn

import fenchel
from fenchel.methods import FIELD_METHODS, STANDARD_METHODS

FURTHER_METHODS = (*FIELD_METHODS, "protected")


@pytest.mark.parametrize(
    ("method", "mode"),
    [
        *product(STANDARD_METHODS, [torch.no_grad, torch.inference_mode, torch.enable_grad]),
        *((method, torch.inference_mode) for method in FURTHER_METHODS),
    ],
)
def test_grad_modes_around_the_call_change_nothing(make_network, make_stream, adapt, method, mode):
    batches = make_stream(3)
    plain, inside = adapt(make_network(), method), adapt(make_network(), method)
    expected = [plain(batch) for batch in batches]
    with mode():
        outputs = [inside(batch) for batch in batches]
    assert all(map(torch.equal, outputs, expected))
    assert not any(output.requires_grad for output in outputs)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", torch.optim.AdamW])
def test_all_may_be_made_inside_inference_mode_and_used_outside(
    make_network, make_stream, adapt, optimizer
):
    batches = make_stream(4)
    plain = adapt(make_network(), optimizer=optimizer, statistics=0.2)
    expected = [plain(batch) for batch in batches]
    with torch.inference_mode():
        adapted = adapt(make_network(), optimizer=optimizer, statistics=0.2)
        outputs = [adapted(batch.clone()) for batch in batches[:1]]
        twin = copy.deepcopy(adapted)
        twin.load_state_dict(adapted.state_dict())
        adapted.reset()
        adapted.load_state_dict(twin.state_dict())
    outputs += [adapted(batch) for batch in batches[1:]]
    assert all(map(torch.equal, outputs, expected))
    assert all(
        torch.equal(twin(batch), out) for batch, out in zip(batches[1:], outputs[1:], strict=True)
    )
    with torch.no_grad():
        adapted.freeze()
        model = adapted.adapted_model().eval()
        assert torch.equal(model(batches[0]), adapted(batches[0]))


def test_moving_the_adapter_inside_inference_mode_keeps_it_working(
    make_network, make_stream, adapt
):
    batches = make_stream(2)
    adapted = adapt(make_network())
    adapted(batches[0])
    with torch.inference_mode():
        adapted.double()
    assert adapted(batches[1].double()).dtype == torch.float64


def test_double_carries_the_whole_state_over(make_network, make_stream, adapt):
    batches = make_stream(4)
    single = adapt(make_network(), optimizer="adam", statistics=0.2)
    double = adapt(make_network(), optimizer="adam", statistics=0.2)
    for batch in batches[:2]:
        single(batch), double(batch)
    double.double()
    for batch in batches[2:]:
        output = double(batch.double())
        assert output.dtype == torch.float64
        torch.testing.assert_close(output.float(), single(batch), rtol=1e-4, atol=1e-5)
    tensors = double.state.parameters | double.state.statistics | double.state.moments
    assert {value.dtype for value in tensors.values()} == {torch.float64}
    assert double.health().updates == 4


def test_autocast_adapts_in_low_precision_close_to_the_full_one(make_network, make_stream, adapt):
    batches = make_stream(5)
    full, low = adapt(make_network()), adapt(make_network())
    for batch in batches:
        expected = full(batch)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = low(batch)
        assert output.dtype == torch.bfloat16
        torch.testing.assert_close(output.float(), expected, rtol=0.1, atol=0.1)
    assert low.health().updates == 5
    assert {value.dtype for value in low.state.parameters.values()} == {torch.float32}


def test_a_surrounding_autocast_block_keeps_no_step_alive(make_network, make_stream, adapt):
    adapted = adapt(make_network(), parameters="all")
    counts = []
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for index, batch in enumerate(make_stream(6)):
            adapted(batch)
            if index in (1, 5):
                gc.collect()
                counts.append(sum(issubclass(type(thing), Tensor) for thing in gc.get_objects()))
        assert torch.is_autocast_cache_enabled()
    assert counts[0] == counts[1]


def test_channels_last_changes_the_layout_alone(make_network, make_stream, adapt):
    batches = make_stream(3)
    plain = adapt(make_network())
    rearranged = adapt(make_network().to(memory_format=torch.channels_last))
    for batch in batches:
        output = rearranged(batch.to(memory_format=torch.channels_last))
        torch.testing.assert_close(output, plain(batch), rtol=1e-4, atol=1e-5)


def test_a_convolutional_output_keeps_channels_last(make_network, make_stream):
    model = make_network()[:2].to(memory_format=torch.channels_last)
    adapted = fenchel.adapt(model, method="entropy", logits=lambda output: output.movedim(1, -1))
    output = adapted(make_stream(1)[0].to(memory_format=torch.channels_last))
    assert output.is_contiguous(memory_format=torch.channels_last)


def test_train_and_eval_of_the_adapter_change_nothing(make_network, make_stream, adapt, untouched):
    batches = make_stream(3)
    model = make_network().train()
    plain, switched = adapt(make_network()), adapt(model)
    with untouched(model):
        for batch, switch in zip(batches, ("train", "eval", "train"), strict=True):
            assert getattr(switched, switch)() is switched
            assert torch.equal(switched(batch), plain(batch))
    assert switched.health().updates == 3


@pytest.mark.parametrize("training", [True, False])
def test_dropout_stays_off_whatever_the_mode_of_the_model(
    make_network, make_stream, adapt, training
):
    model = make_network().train(training)
    adapted = adapt(model, learning_rate=0.0)
    batch = make_stream(1)[0]
    first, second = adapted(batch), adapted(batch)
    assert torch.equal(first, second)
    assert model[7].training is training


def counting_backend():
    """A backend of torch.compile that runs its graphs as they are and counts their runs."""
    runs = []

    def compile_graph(graph, inputs):
        def run(*args):
            runs.append(len(graph.graph.nodes))
            return graph.forward(*args)

        return run

    return compile_graph, runs


@pytest.mark.parametrize(
    ("backend", "statistics"),
    [("eager", "batch"), *product(["aot_eager"], ["batch", "source", 0.3])],
)
def test_a_compiled_model_adapts_as_the_plain_one(
    make_network, make_stream, adapt, backend, statistics
):
    batches = make_stream(4)
    plain = adapt(make_network(), statistics=statistics)
    compiled = adapt(torch.compile(make_network(), backend=backend), statistics=statistics)
    for batch in batches:
        torch.testing.assert_close(compiled(batch), plain(batch), rtol=1e-5, atol=1e-6)
    assert compiled.state_dict().keys() == plain.state_dict().keys()
    for control in ("freeze", "disable", "resume", "reset"):
        getattr(compiled, control)(), getattr(plain, control)()
        torch.testing.assert_close(compiled(batches[0]), plain(batches[0]), rtol=1e-5, atol=1e-6)


def test_a_compiled_model_runs_compiled_and_is_compiled_once(make_network, make_stream, adapt):
    backend, runs = counting_backend()
    adapted = adapt(torch.compile(make_network(), backend=backend, fullgraph=True))
    for batch in make_stream(12):
        adapted(batch)
        adapted.reset()
    assert len(runs) == 2 * 12, "two passes a batch, each one graph"


def test_many_compiled_models_in_one_process_all_run_compiled(adapt):
    backend, runs = counting_backend()
    for depth in range(6):
        model = nn.Sequential(nn.BatchNorm1d(3), *(nn.Identity() for _ in range(depth)))
        adapt(torch.compile(model, backend=backend, fullgraph=True))(torch.rand(20, 3))
    assert len(runs) == 2 * 6


def test_a_compiled_adapter_adapts_as_the_plain_one(make_network, make_stream, adapt):
    plain = adapt(make_network())
    compiled = torch.compile(adapt(make_network()), backend="aot_eager")
    for batch in make_stream(3):
        assert torch.equal(compiled(batch), plain(batch))
    assert compiled.health() == plain.health()


# A warning within the compiler itself, which cannot hide it where warnings are errors.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_a_compiled_part_of_a_model_is_run_as_it_is(make_network, make_stream, adapt):
    model = make_network()
    model[4] = torch.compile(model[4], backend="eager")
    plain, partly = adapt(make_network()), adapt(model)
    assert len(partly.state.parameters) == len(plain.state.parameters) == 4
    for batch in make_stream(2):
        assert torch.equal(partly(batch), plain(batch))


def test_a_pickled_adapter_goes_on(make_network, make_stream, adapt, same_state):
    batches = make_stream(3)
    adapted = adapt(make_network(), optimizer="adam", statistics=0.3)
    adapted(batches[0])
    twin = pickle.loads(pickle.dumps(adapted))
    for batch in batches[1:]:
        assert torch.equal(twin(batch), adapted(batch))
    same_state(twin, adapted)


def test_half_precision_models_adapt(make_stream):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.LayerNorm(192), nn.Linear(192, 4)).bfloat16()
    adapted = fenchel.adapt(model, method="entropy", optimizer="adam", learning_rate=0.01)
    for batch in make_stream(3):
        output = adapted(batch.bfloat16())
    assert output.dtype == torch.bfloat16
    assert adapted.health().updates == 3
    assert adapted.state.parameters["1.weight"].dtype == torch.bfloat16
    assert not torch.equal(adapted.state.parameters["1.weight"], model[1].weight)
