"""What an adapter saves, what it loads, and that another process goes on bit for bit."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fenchel.methods import FIELD_METHODS, STANDARD_METHODS

SCRIPT = Path(__file__).with_name("saved_states.py")
SHARED = runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """Half the stream here, saved; the other half both here and in another process."""
    folder = tmp_path_factory.mktemp("states")
    here = {}
    batches = SHARED["batches"]()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for case in SHARED["CASES"]:
        adapted = SHARED["adapter"](case)
        for batch in batches[:2]:
            adapted(batch)
        torch.save(adapted.state_dict(), folder / f"{case}.pt")
        outputs = [adapted(batch) for batch in batches[2:]]
        here[case] = {"outputs": torch.stack(outputs), **adapted.state_dict()}
    torch.set_num_threads(threads)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, SCRIPT, folder], check=True, env=environment)
    return here, torch.load(folder / "results.pt", weights_only=True)


@pytest.mark.parametrize("case", SHARED["CASES"])
def test_another_process_continues_bit_for_bit(elsewhere, case):
    here, there = (results[case] for results in elsewhere)
    assert here.keys() == there.keys()
    for name, value in here.items():
        assert value.dtype == there[name].dtype
        assert torch.equal(value, there[name]), name


def test_every_method_is_among_the_cases():
    assert {method for method, _, _ in SHARED["CASES"].values()} == {
        *STANDARD_METHODS,
        *FIELD_METHODS,
        "protected",
    }


@pytest.mark.parametrize("statistics", ["batch", 0.2])
def test_the_saved_state_holds_only_what_moved(make_network, make_stream, adapt, statistics):
    adapted = adapt(make_network(), statistics=statistics)
    adapted(make_stream(1)[0])
    saved = adapted.state_dict()
    moved = {name for name in saved if name.startswith("parameters.")}
    assert moved == {f"parameters.{i}.{kind}" for i in (1, 4) for kind in ("weight", "bias")}
    mixed = {name for name in saved if name.startswith("statistics.")}
    assert len(mixed) == (0 if statistics == "batch" else 4)
    assert not any("0.weight" in name or "8." in name for name in saved)
    assert all(value.grad_fn is None and not value.requires_grad for value in saved.values())


def test_a_saved_state_does_not_change_as_adaptation_goes_on(make_network, make_stream, adapt):
    batches = make_stream(3)
    adapted = adapt(make_network(), optimizer="adam", statistics=0.2)
    adapted(batches[0])
    saved = adapted.state_dict()
    held = {name: value.clone() for name, value in saved.items()}
    adapted(batches[1])
    assert all(torch.equal(value, held[name]) for name, value in saved.items())
    adapted.load_state_dict(saved)
    adapted(batches[2])
    assert all(torch.equal(value, held[name]) for name, value in saved.items())


def drop(saved):
    del saved["parameters.1.weight"]


def add(saved):
    saved["parameters.9.weight"] = torch.ones(8)


def reshape(saved):
    saved["parameters.1.weight"] = torch.ones(9)


def lose_a_count(saved):
    del saved["counts.updates"]


def put_in_a_string(saved):
    saved["parameters.1.weight"] = "ones"


def add_a_foreign_moment(saved):
    saved["moments.elsewhere/exp_avg"] = torch.ones(8)


@pytest.mark.parametrize(
    "damage", [drop, add, reshape, lose_a_count, put_in_a_string, add_a_foreign_moment]
)
@pytest.mark.parametrize("optimizer", ["sgd", "adam", torch.optim.AdamW])
def test_a_damaged_state_is_refused_and_nothing_changes(
    make_network, make_stream, adapt, damage, optimizer
):
    adapted = adapt(make_network(), optimizer=optimizer)
    adapted(make_stream(1)[0])
    saved = adapted.state_dict()
    damage(saved)
    before = adapted.state
    with pytest.raises((ValueError, TypeError), match="saved state"):
        adapted.load_state_dict(saved)
    assert adapted.state is before


@pytest.mark.parametrize(
    ("saved_with", "loaded_into"),
    [
        ({"optimizer": "sgd"}, {"optimizer": "adam"}),
        ({"optimizer": "adam"}, {"optimizer": "sgd"}),
        ({"optimizer": "sgd"}, {"optimizer": torch.optim.AdamW}),
        ({"optimizer": torch.optim.AdamW}, {"optimizer": "adam"}),
        ({"statistics": 0.1}, {"statistics": "batch"}),
        ({"statistics": "batch"}, {"statistics": 0.1}),
        ({"parameters": "all"}, {}),
        ({"method": "bn"}, {}),
    ],
    ids=str,
)
def test_a_state_of_other_settings_is_refused(
    make_network, make_stream, adapt, saved_with, loaded_into
):
    one, other = adapt(make_network(), **saved_with), adapt(make_network(), **loaded_into)
    one(make_stream(1)[0])
    before = other.state
    with pytest.raises(ValueError, match="another model or another adapter"):
        other.load_state_dict(one.state_dict())
    assert other.state is before


def test_the_model_s_own_weights_are_refused(make_network, adapt):
    model = make_network()
    with pytest.raises(ValueError, match="another model or another adapter"):
        adapt(model).load_state_dict(model.state_dict())


def test_a_fresh_torch_optimizer_loads_a_state_with_moments_and_one_without(
    make_network, make_stream, adapt, same_state
):
    batches = make_stream(3)
    one, other = (adapt(make_network(), optimizer=torch.optim.Adam) for _ in range(2))
    start = one.state_dict()
    one(batches[0])
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(batches[1]), other(batches[1]))
    same_state(one, other)
    other.load_state_dict(start)
    fresh = adapt(make_network(), optimizer=torch.optim.Adam)
    assert torch.equal(other(batches[2]), fresh(batches[2]))


def test_states_nest_under_a_prefix_in_a_larger_module(make_network, make_stream, adapt):
    adapted = adapt(make_network())
    adapted(make_stream(1)[0])
    outer = torch.nn.ModuleDict({"expert": adapted})
    expected = {f"expert.{name}" for name in adapted.state_dict()}
    assert set(outer.state_dict()) == expected
