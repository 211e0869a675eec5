"""list, derive and adapt as a user types them."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from typer.testing import CliRunner

from fenchel.cli import app, main
from fenchel.losses import LOSSES

Mistake = Callable[..., str]
NETWORK = """
import torch
from torch import nn

def build():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
    )

def focal(h, y):
    z = h.softmax(-1)
    return -(y * (1 - z) ** 2 * h.log_softmax(-1)).sum(-1)

def mean_absolute_error(h, y):
    return (y * (1 - h.softmax(-1))).sum(-1)
"""


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a user's code, weights and images sorted by class."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "network_of_mine.py").write_text(NETWORK)
    torch.manual_seed(0)
    scope: dict[str, object] = {}
    exec(NETWORK, scope)
    model = scope["build"]()  # type: ignore[operator]
    torch.save({"state_dict": {f"module.{k}": v for k, v in model.state_dict().items()}}, "net.pt")
    random = np.random.default_rng(0)
    for label, name in enumerate(("ant", "bee", "cat")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for k in range(12):
            pixels = random.integers(0, 100 + 60 * label, (10, 10, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{k}.png")
    return tmp_path


@pytest.fixture
def mistake(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Mistake:
    """Runs a call that is refused; what it says on standard error."""

    def refused(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["fenchel", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 2
        told = capsys.readouterr().err
        assert "Traceback" not in told
        return told

    return refused


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list_shows_every_loss_and_method() -> None:
    text = run("list")
    for name in (*LOSSES, "conjugate", "memo", "gaussian_noise", "cifar10", "resnet26"):
        assert name in text


def test_list_as_json_is_json() -> None:
    rows = json.loads(run("list", "methods", "--json"))["methods"]
    names = [row["name"] for row in rows]
    paper = ["source", "bn", "entropy", "hard", "soft", "robust", "memo", "conjugate"]
    assert names[:8] == paper
    assert {"learned", "quadratic", "scaled-entropy"} <= set(names)
    about = {row["name"]: row["about"] for row in rows}
    assert "threshold=0.75" in about["hard"]
    eta = next(row for row in rows if row["name"] == "eta")
    assert (eta["forward"], eta["backward"], eta["memory"]) == ("1", "1", "mean prediction")
    assert (eta["needs_batch"], eta["needs_source_data"]) == (False, False)
    assert "ICML 2022" in eta["paper"]
    assert "cifar10" in eta["published"]


def test_derive_of_a_function_tells_label_objective_and_findings(workplace: Path) -> None:
    found = json.loads(run("derive", "network_of_mine.py:focal", "--logits", "2,0,-1", "--json"))
    assert found["findings"]["structure"] == "a function of the true class's probability"
    assert sum(found["label"]) == pytest.approx(1)
    expected = json.loads(run("derive", "focal:gamma=2", "--logits", "2,0,-1", "--json"))
    assert found["label"] == pytest.approx(expected["label"], abs=1e-9)
    assert found["objective"] == pytest.approx(expected["objective"], abs=1e-9)


def test_derive_draws_a_plot(workplace: Path) -> None:
    text = run("derive", "network_of_mine:focal", "--plot", "plots/focal.png")
    assert "objective" in text
    with Image.open("plots/focal.png") as plot:
        assert plot.size[0] > 500


def test_adapt_writes_predictions_and_the_error(workplace: Path) -> None:
    summary = json.loads(
        run(
            "adapt", "--model", "network_of_mine.py:build", "--weights", "net.pt",
            "--trained-with", "poly:epsilon=6", "--images", "photos", "--batch-size", "18",
            "--classes", "folders", "--save-adapted", "adapted.safetensors", "--json",
        )
    )  # fmt: skip
    rows = list(csv.DictReader(Path("predictions.csv").read_text().splitlines()))
    assert len(rows) == summary["images"] == 36
    assert {row["label_name"] for row in rows} == {"ant", "bee", "cat"}
    wrong = sum(row["prediction"] != row["label"] for row in rows)
    assert summary["error_percent"] == pytest.approx(100 * wrong / 36, abs=1e-4)
    assert summary["updates"] == summary["batches"] == 2
    before = torch.load("net.pt", weights_only=True)["state_dict"]
    after = load_file("adapted.safetensors")
    assert not torch.equal(after["1.weight"], before["module.1.weight"])
    assert torch.equal(after["0.weight"], before["module.0.weight"])


def test_adapt_reads_arrays_without_labels(workplace: Path) -> None:
    np.save("images.npy", np.random.default_rng(0).integers(0, 255, (40, 10, 10, 3), np.uint8))
    for method in ("source", "bn", "entropy", "memo", "robust"):
        arguments = ("--model", "network_of_mine.py:build", "--weights", "net.pt")
        summary = json.loads(
            run(
                "adapt",
                *arguments,
                "--images",
                "images.npy",
                "--method",
                method,
                "--force",
                "--json",
            )
        )
        assert summary["error_percent"] is None
        assert summary["images"] == 40
    rows = list(csv.DictReader(Path("predictions.csv").read_text().splitlines()))
    assert [row["image"] for row in rows] == [str(k) for k in range(40)]


def test_adapt_takes_source_images_for_methods_that_need_them(
    workplace: Path, mistake: Mistake
) -> None:
    arguments = [
        "adapt", "--model", "network_of_mine.py:build", "--weights", "net.pt", "--images", "photos",
        "--trained-with", "poly:epsilon=6", "--method", "eata:margin=1,similarity=1", "--json", "--force",
    ]  # fmt: skip
    summary = json.loads(run(*arguments, "--source-images", "photos", "--settings", "cifar10"))
    assert summary["updates"] == summary["batches"] == 1
    assert "--source-images" in mistake(*arguments)


def test_adapt_leaves_to_the_method_what_is_not_told(workplace: Path) -> None:
    """LAME and T3A were made for the source's statistics, under which one image changes no other's."""
    np.save("images.npy", np.random.default_rng(0).integers(0, 255, (24, 10, 10, 3), np.uint8))
    arguments = (
        "adapt", "--model", "network_of_mine.py:build", "--weights", "net.pt", "--images", "images.npy",
        "--force", "--method", "t3a", "--batch-size", "24",
    )  # fmt: skip
    found = {}
    for statistics in ((), ("--statistics", "source"), ("--statistics", "note:0.5")):
        run(*arguments, *statistics, "--json")
        found[statistics] = Path("predictions.csv").read_text()
    own, source, other = found.values()
    assert own == source != other
    published = ("--method", "eta", "--trained-with", "poly", "--settings", "cifar10", "--json")
    assert json.loads(run(*arguments[:8], *published))["images"] == 24


def test_adapt_takes_a_loss_of_the_users_own(workplace: Path) -> None:
    run(
        "adapt", "--model", "network_of_mine.py:build", "--weights", "net.pt",
        "--trained-with", "network_of_mine.py:focal", "--images", "photos",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list", "lossses"], ["losses"]),
        (["derive", "network_of_mine:focl"], ["focal"]),
        (["derive", "network_of_mine:mean_absolute_error"], ["no gradient"]),
        (["derive", "no_such_module:loss"], ["no_such_module"]),
        (["adapt", "--model", "network_of_mine:build", "--images", "nowhere"], ["nowhere"]),
        (
            ["adapt", "--model", "network_of_mine:build", "--images", "photos"],
            ["--trained-with"],
        ),
        (
            ["adapt", "--model", "network_of_mine:build", "--images", "photos", "--method", "conjugat"],
            ["conjugate"],
        ),
        (
            [
                "adapt", "--model", "network_of_mine:build", "--images", "photos",
                "--trained-with", "polly:epsilon=6",
            ],
            ["poly"],
        ),
    ],
    ids=lambda value: " ".join(value) if len(value) > 1 else value[0],
)  # fmt: skip
def test_a_mistake_gets_one_clear_line_and_exit_code_two(
    workplace: Path, arguments: list[str], words: list[str], mistake: Mistake
) -> None:
    told = mistake(*arguments)
    for word in words:
        assert word in told


def test_a_malicious_weights_file_is_refused_and_not_run(workplace: Path, mistake: Mistake) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (os.system, ("touch executed",))

    torch.save({"state_dict": Evil()}, "evil.pt")
    mistake(
        "adapt", "--model", "network_of_mine:build", "--weights", "evil.pt", "--images", "photos",
        "--method", "bn",
    )  # fmt: skip
    assert not Path("executed").exists()
