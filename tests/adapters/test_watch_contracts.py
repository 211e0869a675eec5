"""The monitor is part of its stream: undone, saved, copied, moved and forgotten with it."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import fenchel


@pytest.fixture
def watched(make_network, make_stream):
    """An adapter after two batches that were compared."""
    adapted = fenchel.adapt(make_network(), trained_with="cross-entropy")
    for batch in make_stream(2):
        adapted(batch)
    assert adapted.state_dict()["watch.window"].shape[0] == 2
    return adapted


def test_an_exception_in_a_callback_loses_nothing_of_the_batch(make_network, make_stream):
    """The news is told once the batch is done with: state and monitor have both met it."""
    broken = False

    def on_batch(report):
        if broken:
            raise KeyboardInterrupt

    adapted, quiet = (
        fenchel.adapt(make_network(), trained_with="cross-entropy", on_batch=told)
        for told in (on_batch, None)
    )
    batches = make_stream(2)
    for batch in batches:
        quiet(batch)
    adapted(batches[0])
    broken = True
    with pytest.raises(KeyboardInterrupt):
        adapted(batches[1])
    wanted, found = quiet.state_dict(), adapted.state_dict()
    assert wanted.keys() == found.keys()
    assert all(torch.equal(value, found[name]) for name, value in wanted.items())


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda adapter: pickle.loads(pickle.dumps(adapter))]
)
def test_a_copy_knows_what_was_compared(watched, make_stream, same_state, copied):
    twin = copied(watched)
    same_state(twin, watched)
    batch = make_stream(3)[2]
    assert torch.equal(twin(batch), watched(batch))
    same_state(twin, watched)


def test_a_reset_forgets_what_was_compared(watched, make_stream):
    first = watched.session()
    watched.reset()
    assert watched.health().reason == "the adapter was reset"
    assert not any(
        name.startswith(("watch.window", "watch.healthy")) for name in watched.state_dict()
    )
    batch = make_stream(1)[0]
    assert torch.equal(watched(batch), first(batch))


def test_healthy_parameters_follow_to_another_precision(watched):
    watched.double()
    healthy = [v for name, v in watched.state_dict().items() if name.startswith("watch.healthy.")]
    assert {value.dtype for value in healthy} == {torch.float64}


def test_a_damaged_monitor_is_refused_and_nothing_changes(watched):
    saved = watched.state_dict()
    del saved["watch.verdict"]
    before = watched.state
    with pytest.raises(ValueError, match="this saved state has no 'verdict' of the monitor"):
        watched.load_state_dict(saved)
    assert watched.state is before


def test_a_named_method_under_protection_remembers_the_classes_of_the_stream(
    make_network, make_stream
):
    """Batch statistics are kept beside what is known of the predicted classes."""
    options = {"method": "entropy", "protect": "auto"}
    adapted = fenchel.adapt(make_network(), **options)
    for batch in make_stream(3):
        adapted(batch)
    assert float(adapted.state.seen["class_samples"]) == 60
    assert int(adapted.state.seen["samples"]) == 60
    assert set(adapted.adapted_model().state_dict()) == set(make_network().state_dict())


def test_outputs_without_classes_are_adapted_and_not_watched(make_stream):
    torch.manual_seed(0)
    dense = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4))
    adapted = fenchel.adapt(dense, trained_with="cross-entropy", dim=1)
    for batch in make_stream(2):
        assert adapted(batch).shape == (20, 4, 8, 8)
    health = adapted.health()
    assert health.updates == 2
    assert "not watched" in health.reason
