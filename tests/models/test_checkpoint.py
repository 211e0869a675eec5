"""Checkpoints: what they say, that they are atomic, and that nothing in them is trusted."""

import json
import os

import pytest
import safetensors.torch
import torch
from safetensors import safe_open

from fenchel import models
from fenchel.files import safetensors_bytes, write_atomically
from fenchel.models import Checkpoint, Metadata, load_checkpoint, read_metadata


def example(**changes) -> Checkpoint:
    torch.manual_seed(0)
    model = models.build("digit_network", classes=3, width=4, mean=0.25, std=0.5)
    fields = {
        "architecture": "digit_network",
        "arguments": {"classes": 3, "width": 4},
        "loss": "poly:epsilon=6",
        "classes": ("zero", "one", "two"),
        "data": "digits",
        "data_digest": "0" * 64,
        "recipe": {"preset": "cpu", "epochs": 2},
        "epoch": 2,
        "metrics": {"test_accuracy": 0.5},
    }
    return Checkpoint(model, Metadata(**{**fields, **changes}))


def test_a_checkpoint_comes_back_bit_for_bit(tmp_path):
    saved = example()
    saved.save(tmp_path / "model.safetensors")
    loaded = load_checkpoint(tmp_path / "model.safetensors")
    assert loaded.loss_spec == "poly:epsilon=6"
    assert loaded.classes == ("zero", "one", "two")
    assert loaded.preprocessing == {"mean": [0.25], "std": [0.5], "input_range": [0.0, 1.0]}
    assert loaded.metadata.recipe == {"preset": "cpu", "epochs": 2}
    assert loaded.metadata.epoch == 2
    assert loaded.metadata.metrics == {"test_accuracy": 0.5}
    assert loaded.metadata.data_digest == "0" * 64
    assert loaded.digest == saved.digest
    assert not loaded.model.training
    images = torch.rand(4, 1, 8, 8)
    assert torch.equal(loaded.model(images), saved.model.eval()(images))


def test_equal_checkpoints_are_equal_files(tmp_path):
    contents = set()
    for attempt in range(4):
        example().save(tmp_path / f"{attempt}.safetensors")
        contents.add((tmp_path / f"{attempt}.safetensors").read_bytes())
    assert len(contents) == 1


def test_any_safetensors_reader_sees_the_metadata(tmp_path):
    example().save(tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        strings = file.metadata()
    assert strings["loss"] == "poly:epsilon=6"
    assert strings["architecture"] == "digit_network"
    assert json.loads(strings["arguments"]) == {"classes": 3, "width": 4}
    assert json.loads(strings["preprocessing"])["mean"] == [0.25]


def test_the_folder_of_a_run_stands_for_its_checkpoint(tmp_path):
    example().save(tmp_path / "run" / "checkpoint.safetensors")
    assert read_metadata(tmp_path / "run").data == "digits"


def test_digest_changes_with_one_bit_of_one_weight():
    first, second = example(), example()
    assert first.digest == second.digest
    with torch.no_grad():
        second.model.fc.bias[0] += 1e-3
    assert first.digest != second.digest


def test_channels_last_weights_are_saved_as_values():
    tensor = torch.rand(2, 3, 4, 4)
    plain = safetensors_bytes({"w": tensor}, {})
    assert safetensors_bytes({"w": tensor.to(memory_format=torch.channels_last)}, {}) == plain


def test_loading_leaves_the_random_state_alone(tmp_path):
    example().save(tmp_path / "model.safetensors")
    before = torch.random.get_rng_state()
    load_checkpoint(tmp_path / "model.safetensors")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "file"
    write_atomically(target, b"old")

    def fail(*_arguments):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"


def tampered(tmp_path, **strings):
    """A checkpoint whose metadata were replaced, as an attacker would."""
    saved = example()
    metadata = {**saved.metadata.to_strings(), **strings}
    safetensors.torch.save_file(saved.model.state_dict(), tmp_path / "t.safetensors", metadata)
    return tmp_path / "t.safetensors"


@pytest.mark.parametrize(
    ("strings", "message"),
    [
        ({"format": "other"}, "load_weights"),
        ({"architecture": "os:system"}, "unknown model"),
        ({"architecture": "linear"}, "cannot be built"),
        ({"arguments": "{"}, "damaged"),
        ({"arguments": "[1]"}, "damaged"),
        ({"classes": "7"}, "damaged"),
        ({"arguments": '{"classes": 4, "width": 4}'}, "of another shape"),
        # Two terabytes of weights, were they made before they are compared with the file.
        ({"arguments": '{"classes": 30000000000, "width": 4}'}, "of another shape"),
    ],
)
def test_a_tampered_checkpoint_is_refused(tmp_path, strings, message):
    with pytest.raises(ValueError, match=message):
        load_checkpoint(tampered(tmp_path, **strings))


def test_weights_without_metadata_say_what_to_do(tmp_path):
    safetensors.torch.save_file({"w": torch.ones(2)}, tmp_path / "bare.safetensors")
    with pytest.raises(ValueError, match="load_weights"):
        load_checkpoint(tmp_path / "bare.safetensors")


def test_a_pickle_is_no_checkpoint(tmp_path):
    torch.save({"w": torch.ones(2)}, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match="load_weights"):
        load_checkpoint(tmp_path / "weights.pt")


def test_a_missing_checkpoint_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="fenchel train"):
        load_checkpoint(tmp_path)
