"""Weights from files: wrappers, prefixes, damage, and pickles that would run code."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from fenchel.models import load_weights, read_state_dict
from fenchel.models.weights import strip_prefixes


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def prefixed(state, prefix):
    return {prefix + name: tensor for name, tensor in state.items()}


WRAPPINGS = {
    "bare": lambda state: state,
    "net": lambda state: {"net": state, "acc": 91.5, "epoch": 3},
    "state_dict": lambda state: {"state_dict": state, "optimizer": {"lr": 0.1, "state": {}}},
    "model": lambda state: {"model": state, "args": ["--lr", "0.1"]},
    "module prefix": lambda state: {"state_dict": prefixed(state, "module.")},
    "compiled in parallel": lambda state: {"net": prefixed(state, "module._orig_mod.")},
    "nested": lambda state: {"model": {"state_dict": prefixed(state, "module.")}},
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("suffix", [".pt", ".pth"])
def test_public_files_load_whatever_their_wrapping(tmp_path, wrapping, suffix):
    source, path = network(), tmp_path / f"weights{suffix}"
    torch.save(WRAPPINGS[wrapping](source.state_dict()), path)
    target = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    load_weights(target, path)
    for name, tensor in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], tensor), name


def test_safetensors_files_load_too(tmp_path):
    source = network()
    safetensors.torch.save_file(
        prefixed(source.state_dict(), "module."), tmp_path / "w.safetensors"
    )
    assert set(read_state_dict(tmp_path / "w.safetensors")) == set(source.state_dict())


def test_a_prefix_that_only_some_names_carry_stays():
    state = {"module.weight": torch.ones(1), "head.weight": torch.ones(1)}
    assert strip_prefixes(state) == state


class Attack:
    """Unpickling it would create a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("bare_pickle", [True, False], ids=["pickle", "torch.save"])
def test_a_malicious_pickle_is_refused_without_executing(tmp_path, protocol, bare_pickle):
    mark, path = tmp_path / "executed", tmp_path / "weights.pt"
    if bare_pickle:
        path.write_bytes(pickle.dumps(Attack(mark), protocol=protocol))
    else:
        state = {"weight": torch.ones(2), "bias": Attack(mark)}
        torch.save({"state_dict": state}, path, pickle_protocol=max(2, protocol))
    with pytest.raises(ValueError, match=r"without running code|well formed"):
        read_state_dict(path)
    assert not mark.exists()
    if bare_pickle:  # and it would have executed: the attack is real
        pickle.loads(path.read_bytes())
    else:
        torch.load(path, weights_only=False)
    assert mark.exists()


def test_a_whole_pickled_model_is_refused(tmp_path):
    torch.save(network(), tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"Save `model.state_dict\(\)` alone"):
        read_state_dict(tmp_path / "model.pt")


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_damaged_files_are_a_clear_error(tmp_path, suffix):
    whole = tmp_path / f"whole{suffix}"
    if suffix == ".pt":
        torch.save(network().state_dict(), whole)
    else:
        safetensors.torch.save_file(network().state_dict(), whole)
    content, damaged = whole.read_bytes(), tmp_path / f"damaged{suffix}"
    generator = np.random.default_rng(0)
    for length in generator.integers(0, len(content), size=40):
        damaged.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"well formed|without running code"):
            read_state_dict(damaged)


def test_an_html_page_is_a_clear_error(tmp_path):
    (tmp_path / "page.pth").write_text("<!doctype html><html><body>404</body></html>")
    with pytest.raises(ValueError, match=r"page\.pth"):
        read_state_dict(tmp_path / "page.pth")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"epoch": 3, "history": [1, 2]}, "epoch, history"),
        ([torch.ones(2)], "holds list"),
        ({}, "dictionary of tensors"),
    ],
)
def test_a_file_without_weights_says_what_it_holds(tmp_path, content, message):
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(ValueError, match=message):
        read_state_dict(tmp_path / "w.pt")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.pt"):
        read_state_dict(tmp_path / "nowhere.pt")


def test_names_that_do_not_fit_are_listed_with_the_nearest():
    model, state = network(), dict(network().state_dict())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state["0.wieght"] = state.pop("0.weight") + 1
    state["2.bias"] = torch.zeros(7)
    with pytest.raises(ValueError) as caught:
        load_weights(model, state)
    message = str(caught.value)
    assert "1 missing: 0.weight (nearest: 0.wieght)" in message
    assert "1 unexpected: 0.wieght (nearest: 0.weight)" in message
    assert "2.bias is (7,), the model has (2,)" in message
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_files_older_than_the_batch_counter_load():
    state = {k: v for k, v in network().state_dict().items() if "num_batches" not in k}
    model = network()
    load_weights(model, state)
    assert model[1].num_batches_tracked == 0
