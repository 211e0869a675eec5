"""`fenchel train` as a user types it."""

import json
import sys

import numpy as np
import pytest

from fenchel.cli import main
from fenchel.cli.train import default_name
from fenchel.data import DATASETS
from fenchel.models import load_checkpoint

pytest.importorskip("sklearn")

COMMAND = ["train", "--data", "sklearn-digits", "--model", "digit_network:width=4"]


@pytest.fixture
def fenchel(tmp_path, monkeypatch, capsys):
    """Run the command line in this process, in an empty folder: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fenchel", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return call


def test_train_leaves_a_checkpoint_that_knows_its_loss(fenchel, tmp_path):
    extra = ("--loss", "poly:epsilon=6", "--epochs", 2, "--seed", 0, "--out", "runs/first")
    code, output, errors = fenchel(*COMMAND, *extra)
    assert code == 0, errors
    checkpoint = load_checkpoint(tmp_path / "runs" / "first")
    assert checkpoint.loss_spec == "poly:epsilon=6"
    assert checkpoint.metadata.recipe["augmentation"] == "pad-crop:padding=1,flip=False"
    lines = [line for line in errors.splitlines() if line.startswith("epoch ")]
    assert len(lines) == 2  # one per epoch when not a terminal
    assert "accuracy" in lines[0]
    assert "left" in lines[0]
    assert "test accuracy: " in output
    assert "runs/first/checkpoint.safetensors" in output


def test_the_same_command_again_trains_nothing_and_another_is_refused(fenchel, tmp_path):
    extra = ("--epochs", 2, "--out", "run", "--json")
    code, first, errors = fenchel(*COMMAND, *extra)
    assert code == 0, errors
    code, second, errors = fenchel(*COMMAND, *extra)
    assert (code, second) == (0, first)
    assert "epoch 1/2" not in errors
    found = json.loads(second)
    assert found["metrics"] == dict(load_checkpoint(tmp_path / "run").metadata.metrics)
    assert [row["epoch"] for row in found["history"]] == [1, 2]
    code, _, errors = fenchel(*COMMAND, *extra, "--batch-size", 32)
    assert code == 2
    assert "--batch-size 64 (now 32)" in errors


def test_images_without_a_test_split_are_not_scored_on_themselves(fenchel, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 1)).astype(np.uint8)
    np.savez(tmp_path / "mine.npz", images=pixels, labels=np.arange(60) % 3)
    arguments = ("--data", "arrays", "--root", "mine.npz", "--model", "digit_network:width=4")
    code, output, errors = fenchel("train", *arguments, "--epochs", 1, "--json", "--out", "run")
    assert code == 0, errors
    assert "no test images of its own" in errors
    assert "test_accuracy" not in json.loads(output)["metrics"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--loss", "pooly"], "Did you mean 'poly'"),
        (["--preset", "papper"], "Did you mean 'paper'"),
        (["--keep", "best"], "held out of the training set"),
        (["--epochs", "0"], "at least 1"),
        (["--device", "tpu"], "unknown device"),
        (["--model", "resnet62"], "Did you mean 'resnet26'"),
        (["--data", "cifra10"], "Did you mean 'cifar10'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(fenchel, tmp_path, arguments, message):
    code, _, errors = fenchel(*COMMAND, *arguments)
    assert code == 2
    assert message in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "runs").exists()


def test_the_gaussians_train_in_seconds(fenchel, tmp_path):
    command = ("train", "--data", "gaussians", "--model", "linear", "--loss", "exponential")
    code, output, errors = fenchel(*command, "--out", "run", "--json")
    assert code == 0, errors
    assert json.loads(output)["metrics"]["test_accuracy"] > 0.9
    assert load_checkpoint(tmp_path / "run").metadata.arguments["classes"] == 1


def test_the_digits_preset_trains_on_28_pixel_crops_of_svhn(fenchel, tmp_path):
    DATASETS["svhn"].write_example(tmp_path)
    command = ("train", "--data", "svhn", "--root", tmp_path, "--preset", "digits", "--epochs", 1)
    # A linear model has one weight a pixel, so it tells the size of the images it met.
    code, _, errors = fenchel(*command, "--model", "linear", "--out", "run")
    assert code == 0, errors
    metadata = load_checkpoint(tmp_path / "run").metadata
    assert metadata.arguments["features"] == 28 * 28 * 3
    assert metadata.recipe["final_learning_rate"] == 1e-5


def test_folder_names_hold_no_awkward_characters():
    assert default_name("svhn:digits=True", "timm/resnet18", "focal:gamma=2.0", 3) == (
        "svhn-digits-True-timm-resnet18-focal-gamma-2.0-seed3"
    )
