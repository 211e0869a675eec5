"""`fenchel calibrate`, and the verbs that use what it wrote."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fenchel import Calibration
from fenchel.bench.canonical import canonical_settings
from fenchel.cli import main
from fenchel.cli.calibrate import _beside
from fenchel.losses import CrossEntropy
from fenchel.models import zoo

NETWORK = """
from torch import nn

def build():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(16, 3),
    ).eval()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NETWORK)
    images = np.random.default_rng(0).integers(0, 256, (40, 12, 12, 3), dtype=np.uint8)
    np.save("images.npy", images)
    np.savez("labelled.npz", images=images, labels=np.arange(40) % 3)
    np.save("labels.npy", np.arange(40) % 3)
    return tmp_path


def fenchel(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fenchel", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


CALL = (
    "--model",
    "net.py:build",
    "--trained-with",
    "cross-entropy",
    "--trials",
    "2",
    "--length",
    "40",
    "--out",
    "c.safetensors",
)


def calibrate(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    return fenchel(monkeypatch, "calibrate", *CALL, *words)


def test_labels_are_used_where_they_are_and_may_be_left_aside(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, level in (
        (("--images", "labelled.npz"), "labels"),
        (("--images", "images.npy", "--labels", "labels.npy"), "labels"),
        (("--images", "labelled.npz", "--without-labels"), "images"),
        (("--images", "images.npy"), "images"),
    ):
        assert calibrate(monkeypatch, *words, "--force", "--json") == 0
        said = json.loads(capsys.readouterr().out)
        assert said["level"] == level
        assert said["file"] == "c.safetensors"
        assert Calibration.load("c.safetensors").described() == {
            key: value for key, value in said.items() if key != "file"
        }


def test_the_same_labels_from_two_places_give_the_same_file(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrate(monkeypatch, "--images", "labelled.npz")
    first = Path("c.safetensors").read_bytes()
    calibrate(monkeypatch, "--images", "images.npy", "--labels", "labels.npy", "--force")
    assert Path("c.safetensors").read_bytes() == first


def test_adapt_uses_the_file(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Calibration(
        method="protected", settings={"longest": 0.01, "temperature": 2.0}, level="labels"
    ).save("mine.safetensors")
    words = (
        "--model",
        "net.py:build",
        "--trained-with",
        "cross-entropy",
        "--images",
        "images.npy",
        "--json",
    )
    assert fenchel(monkeypatch, "adapt", *words, "--settings", "mine.safetensors") == 0
    assert json.loads(capsys.readouterr().out)["settings"]["settings"] == "mine.safetensors"
    refused = fenchel(
        monkeypatch, "adapt", *words, "--settings", "mine.safetensors", "--method", "eta", "--force"
    )
    assert refused == 2
    assert "chosen for method 'protected'" in " ".join(capsys.readouterr().err.split())


def test_a_sweep_takes_the_settings_of_a_file(place: Path) -> None:
    Calibration(
        method="eta", settings={"learning_rate": 0.02, "temperature": 2.0}, level="labels"
    ).save("eta.safetensors")
    given: dict[str, Any] = {"settings": "eta.safetensors"}
    from_file = canonical_settings("eta", given, CrossEntropy(), {})
    assert (from_file["learning_rate"], from_file["temperature"]) == (0.02, 2.0)
    spelled = {"learning_rate": 0.02, "temperature": 2.0}
    assert from_file == canonical_settings("eta", spelled, CrossEntropy(), {})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--images", "nowhere"), "nowhere"),
        (("--images", "images.npy", "--labels", "images.npy"), "one class number per image"),
        (("--images", "images.npy", "--method", "nothing"), "nothing"),
    ],
)
def test_mistakes_are_one_line(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    assert calibrate(monkeypatch, *words) == 2
    text = capsys.readouterr().err
    assert said in " ".join(text.split())
    assert "Traceback" not in text


def test_a_file_that_is_there_is_not_overwritten(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("c.safetensors").write_text("mine")
    assert calibrate(monkeypatch, "--images", "images.npy") == 2
    assert Path("c.safetensors").read_text() == "mine"


@pytest.mark.parametrize("rate", ["fast", "-1"])
def test_a_learning_rate_is_a_number_or_auto(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rate: str
) -> None:
    words = ("--model", "net.py:build", "--trained-with", "cross-entropy", "--images", "images.npy")
    assert fenchel(monkeypatch, "adapt", *words, f"--learning-rate={rate}") == 2
    assert "or auto" in capsys.readouterr().err


def test_nothing_is_written_into_the_zoo() -> None:
    name = zoo.names()[0]
    assert _beside(zoo.path_of(name), f"zoo:{name}") == Path(f"{name}.calibration.safetensors")
    assert _beside(Path("runs/ce.safetensors"), "runs/ce") == Path(
        "runs/ce.calibration.safetensors"
    )
