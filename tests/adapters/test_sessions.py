"""Many streams on one network: sessions of their own, in one thread or in several."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch
from torch import nn

import fenchel
from fenchel.methods import FIELD_METHODS
from fenchel.models import resnet26

FURTHER_METHODS = (*FIELD_METHODS, "protected")

THREADS, BATCHES = 8, 50
FEWER = 10
"""For methods of several passes: as many threads, and a fraction of the time."""


def streams(make_stream, batches=BATCHES):
    return [make_stream(batches, size=16, seed=seed) for seed in range(THREADS)]


def run(session, batches):
    return [session(batch) for batch in batches]


def at_once(tasks):
    """Every task in a thread of its own, all started at the same moment."""
    gate = Barrier(len(tasks))

    def begin(task):
        gate.wait()
        return task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(pool.map(begin, tasks))


@pytest.mark.parametrize(
    ("method", "options", "count"),
    [
        ("conjugate", {"optimizer": "adam"}, BATCHES),
        ("conjugate", {"statistics": 0.2}, FEWER),
        ("conjugate", {"parameters": ["4.*"], "steps": 2}, FEWER),
        ("memo", {"views": 1}, FEWER),
        ("hard", {"predict": "before"}, FEWER),
        ("bn", {}, FEWER),
        *((method, {}, 3) for method in FURTHER_METHODS),
    ],
    ids=["adam", "mix", "reuse", "memo", "before", "bn", *FURTHER_METHODS],
)
def test_eight_threads_equal_sequential_runs_bit_for_bit(
    make_network, make_stream, adapt, untouched, method, options, count
):
    model = make_network()
    adapted = adapt(model, method, **options)
    batches = streams(make_stream, count)
    expected = [run(adapted.session(), part) for part in batches]
    with untouched(model):
        sessions = [adapted.session() for _ in range(THREADS)]
        found = at_once(
            [lambda s=s, part=part: run(s, part) for s, part in zip(sessions, batches, strict=True)]
        )
    for mine, theirs in zip(found, expected, strict=True):
        assert all(map(torch.equal, mine, theirs))
    assert [session.health().batches for session in sessions] == [count] * THREADS


def test_the_pure_step_may_be_run_by_several_threads(make_network, make_stream, adapt):
    """The bare step with states of one's own, without any session."""
    adapted = adapt(make_network())
    batches = streams(make_stream)

    def walk(part):
        state, outputs = adapted.state, []
        for batch in part:
            state, output = adapted.step(state, fenchel.adapters.Inputs((batch,), {}))
            outputs.append(output)
        return outputs

    expected = [walk(part) for part in batches]
    found = at_once([lambda part=part: walk(part) for part in batches])
    for mine, theirs in zip(found, expected, strict=True):
        assert all(map(torch.equal, mine, theirs))


def test_one_session_called_by_several_threads_loses_no_batch(make_network, make_stream, adapt):
    adapted = adapt(make_network())
    batches = make_stream(40)
    at_once([lambda n=n: run(adapted, batches[n::4]) for n in range(4)])
    assert adapted.health().batches == 40
    assert adapted.health().updates == 40
    assert adapted.state.step == 40


def test_a_real_network_in_two_threads(make_stream):
    torch.manual_seed(0)
    adapted = fenchel.adapt(resnet26(classes=10).eval(), trained_with="poly:epsilon=6")
    parts = torch.rand(2, 3, 16, 3, 32, 32)
    expected = [run(adapted.session(), part) for part in parts]
    found = at_once([lambda part=part: run(adapted.session(), part) for part in parts])
    for mine, theirs in zip(found, expected, strict=True):
        assert all(map(torch.equal, mine, theirs))


def test_a_compiled_network_is_lent_to_one_thread_at_a_time(make_stream):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    compiled = torch.compile(model, backend="eager")
    adapted = fenchel.adapt(compiled, trained_with="cross-entropy", learning_rate=0.05)
    parts = [make_stream(6, seed=seed) for seed in range(4)]
    expected = [run(adapted.session(), part) for part in parts]
    found = at_once([lambda part=part: run(adapted.session(), part) for part in parts])
    for mine, theirs in zip(found, expected, strict=True):
        assert all(map(torch.equal, mine, theirs))


def test_sessions_are_apart_and_the_adapter_has_one_of_its_own(make_network, make_stream, adapt):
    batches = make_stream(4)
    model = make_network()
    adapted = adapt(model)
    one, other = adapted.session(), adapted.session()
    alone = adapt(model)
    first = [one(batch) for batch in batches]
    assert all(map(torch.equal, first, [alone(batch) for batch in batches]))
    assert (adapted.health().batches, other.health().batches) == (0, 0)
    other.freeze()
    one.reset()
    assert one.health().resets == 1
    assert adapted.health().mode == "adapting"
    assert torch.equal(one(batches[0]), first[0])


def test_a_session_is_saved_and_restored_by_itself(make_network, make_stream, adapt):
    adapted = adapt(make_network(), optimizer="adam", statistics=0.3)
    batches = make_stream(4)
    session = adapted.session()
    run(session, batches[:2])
    saved = {name: value.clone() for name, value in session.state_dict().items()}
    rest = run(session, batches[2:])
    later = adapted.session()
    later.load_state_dict(saved)
    assert all(map(torch.equal, run(later, batches[2:]), rest))


def test_a_session_costs_no_copy_of_the_weights():
    torch.manual_seed(0)
    model = resnet26(classes=10)
    adapted = fenchel.adapt(model, trained_with="cross-entropy")
    adapted.session()(torch.rand(16, 3, 32, 32))

    def floats():
        gc.collect()
        kept = {}
        for thing in gc.get_objects():
            if type(thing) in (torch.Tensor, nn.Parameter):
                kept[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
        return sum(kept.values())

    before = floats()
    sessions = [adapted.session() for _ in range(20)]
    weights = sum(value.nbytes for value in model.parameters())
    moving = sum(value.nbytes for value in adapted.state.parameters.values())
    grown = floats() - before
    # The parameters, two moments of the optimiser, and running statistics.
    assert grown < 20 * 5 * moving
    assert grown < weights
    assert len(sessions) == 20


def test_sessions_follow_their_adapter_to_another_precision(make_network, make_stream, adapt):
    adapted = adapt(make_network())
    session = adapted.session()
    batches = make_stream(2)
    session(batches[0])
    adapted.double()
    assert session(batches[1].double()).dtype == torch.float64
    assert session.health().batches == 2


def test_unloading_ends_every_session(make_network, make_stream, adapt):
    adapted = adapt(make_network())
    session = adapted.session()
    adapted.unload()
    with pytest.raises(RuntimeError, match="was unloaded"):
        session(make_stream(1)[0])
    assert session.health().mode == "unloaded"


def test_the_online_loop_resets_where_the_stream_says_so(make_network, make_stream, adapt):
    from fenchel.data import from_arrays
    from fenchel.data.stream import Stream, shift_to

    images = torch.stack(make_stream(2)).reshape(-1, 3, 8, 8).permute(0, 2, 3, 1)
    images = (images * 255).to(torch.uint8).numpy()
    shifts = [
        shift_to(from_arrays(name, images, np.arange(40) % 4, classes="abcd"))
        for name in ("one", "two")
    ]
    stream = Stream(shifts=shifts, batch_size=20)
    adapted, by_hand = adapt(make_network()), adapt(make_network())
    outputs = [output for _, output in fenchel.online(adapted, stream)]
    assert adapted.health().resets == 1
    for batch, output in zip(stream, outputs, strict=True):
        if batch.reset and batch.number:
            by_hand.reset()
        assert torch.equal(by_hand(batch.inputs), output)


def test_the_online_loop_takes_tensors_and_pairs(make_network, make_stream, adapt):
    batches = make_stream(3)
    adapted = adapt(make_network())
    plain = [output for _, output in fenchel.online(adapted.session(), batches)]
    labelled = [(batch, torch.zeros(20)) for batch in batches]
    pairs = list(fenchel.online(adapted.session(), labelled))
    assert all(pair is given for (pair, _), given in zip(pairs, labelled, strict=True))
    assert all(torch.equal(output, other) for (_, output), other in zip(pairs, plain, strict=True))
