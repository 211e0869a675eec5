"""`fenchel models` and `fenchel list checkpoints`: published networks, and the loss behind them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fenchel.cli import app
from fenchel.models import PRETRAINED


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCHEL_HOME", str(tmp_path))


def told(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def shown(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False, env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_list_names_the_networks_and_their_losses() -> None:
    rows = told("models", "list")
    assert [row["name"] for row in rows] == [f"pretrained:{name}" for name in sorted(PRETRAINED)]
    losses = {row["name"].partition(":")[2]: row["trained_with"] for row in rows}
    assert losses["resnet50"] == "cross-entropy"
    assert not any(row["present"] for row in rows)
    assert "efficientnet-lite0" in shown("models", "list")


def test_show_has_the_preprocessing_the_evidence_and_the_terms() -> None:
    facts = told("models", "show", "resnet50")
    assert facts["preprocessing"]["mean"][0] == pytest.approx(123.68 / 255)
    assert facts["parameters"] == 25_557_032
    for fact in ("evidence", "licence", "source", "mirrors"):
        assert facts[fact]
    assert "sha256 of weights" in shown("models", "show", "mobilenet-v2")


def test_fetch_names_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(name: str, *, force: bool, say: Any) -> Path:
        say(f"{name} is ready")
        return tmp_path / name

    monkeypatch.setattr("fenchel.models.pretrained.fetch.fetch", fetch)
    found = told("models", "fetch", "resnet50", "mobilenet-v2")
    assert [row["file"] for row in found] == [str(tmp_path / row["name"]) for row in found]


def test_an_unknown_network_is_told_before_anything_is_fetched() -> None:
    result = CliRunner().invoke(app, ["models", "fetch", "resnet50", "resnet51"])
    assert isinstance(result.exception, ValueError)
    assert "Did you mean 'resnet50'" in str(result.exception)


def test_the_loss_behind_a_checkpoint_is_listed_with_its_evidence() -> None:
    (row,) = told("list", "checkpoints", "transformers/google/siglip-so400m")["checkpoints"]
    assert (row["loss"], row["confidence"]) == ("binary-cross-entropy", "stated")
    assert "SigLIP" in row["evidence"]
    rules = told("list", "checkpoints")["checkpoints"]
    assert len(rules) > 50
    assert {row["confidence"] for row in rules} == {"stated", "likely", None}
    assert "distilled" in shown("list", "checkpoints")


def test_a_pattern_chooses_among_names_of_any_kind() -> None:
    assert [row["name"] for row in told("list", "models", "resnet50*")["models"]] == [
        "resnet50_small",
        "resnet50",
        "resnet50_keras",
    ]
    assert "checkpoints" not in told("list")
