"""`fenchel reproduce` as a user types it."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from fenchel.bench.sources import opened_file, opened_model, opened_shift
from fenchel.cli import app, main
from fenchel.data import DATASETS
from fenchel.data.home import dataset_folder
from fenchel.models import Checkpoint, Metadata, build
from fenchel.paper import PRESETS, gaussian_experiment, gaussian_map


@pytest.fixture(autouse=True)
def _nothing_opened_before() -> None:
    """A process keeps what it opened, by name; here the same names mean other files in every test."""
    for kept in (opened_model, opened_file, opened_shift):
        kept.cache_clear()


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """USPS in the cache, and a network that says it was trained on SVHN with cross-entropy."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FENCHEL_HOME", str(tmp_path / "home"))
    folder = dataset_folder("usps")
    folder.mkdir(parents=True)
    DATASETS["usps"].write_example(folder)
    save_network(channels=3)
    return tmp_path


def save_network(channels: int, data: str = "svhn") -> None:
    torch.manual_seed(0)
    arguments = {"channels": channels, "width": 4}
    metadata = Metadata(
        architecture="digit_network",
        arguments=arguments,
        loss="cross-entropy",
        classes=tuple("0123456789"),
        data=data,
    )
    Checkpoint(build("digit_network", **arguments), metadata).save("runs/a/checkpoint.safetensors")


OURS = ("--scale", "smoke", "--checkpoints", "runs")


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["reproduce", *arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def test_list_prints_one_full_name_a_line_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    assert run("list").splitlines() == list(PRESETS)


def test_ours_stand_beside_the_papers_and_what_is_missing_is_named(workplace: Path) -> None:
    text = run("table-ce-digits", *OURS)
    row = next(line for line in text.splitlines() if "USPS, T = 2" in line and "memo" in line)
    assert "adam 0.01, T 2" in row
    assert "22.42" in row
    assert "missing" not in row
    assert any("MNIST, T = 1" in line and "missing" in line for line in text.splitlines())
    assert "fenchel data fetch mnist" in text
    written = Path("reproduce/table-ce-digits/table-ce-digits.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(written.splitlines()))
    assert len(rows) == 30
    by_line = {(row["line"], row["method"]): row for row in rows}
    assert 0 <= float(by_line["SVHN → USPS, T = 2", "conjugate"]["ours"]) <= 100
    assert by_line["SVHN → MNIST, T = 1", "conjugate"]["ours"] == ""
    assert by_line["SVHN → MNIST, T = 1", "conjugate"]["paper"] == "14.41"


def test_a_second_run_takes_the_results_of_the_first(workplace: Path) -> None:
    first = run("table-ce-digits", *OURS)
    again = CliRunner().invoke(app, ["reproduce", "table-ce-digits", *OURS])
    assert again.stdout == first
    assert "9 known already, 0 to run" in again.stderr
    told = json.loads(run("table-ce-digits", *OURS, "--json"))
    ours = [row["ours"] for row in told["rows"] if row["line"] == "SVHN → USPS, T = 2"]
    assert all(0 <= error <= 100 for error in ours)
    assert (told["cells"], told["failed_cells"]) == (9, 0)
    assert all(Path(file).is_file() for file in (*told["files"], told["store"]))


def test_failed_cells_are_told_by_the_exit_code_and_run_again_on_request(workplace: Path) -> None:
    save_network(channels=1)
    command = ["reproduce", "table-ce-digits", *OURS]
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 1, first.output
    rows = [line for line in first.stdout.splitlines() if line.startswith("SVHN → USPS")]
    assert rows
    assert all("failed" in row for row in rows)
    again = CliRunner().invoke(app, [*command, "--json"])
    assert again.exit_code == 1
    assert json.loads(again.stdout)["failed_cells"] == 9
    assert "0 to run" in again.stderr
    assert "0 known already" in CliRunner().invoke(app, [*command, "--retry-failed"]).stderr


def test_hostile_streams_have_goals_verdicts_and_a_store_of_their_own(workplace: Path) -> None:
    folder = dataset_folder("cifar10")
    folder.mkdir(parents=True)
    DATASETS["cifar10"].write_example(folder)
    save_network(channels=3, data="cifar10")
    chosen = ("--column", "source", "--column", "default", "--row", "rate x 100", "--row", "clean")
    text = run("hostile", *OURS, *chosen)
    row = next(line for line in text.splitlines() if line.startswith("clean "))
    assert "11.8" in row
    assert "goals met by the protected default: " in text
    assert "fenchel train --data cifar10 --model resnet26 --loss squared" in text
    written = Path("reproduce/hostile/hostile.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(written.splitlines()))
    assert {row["column"] for row in rows if row["error"]} == {"source", "default"}
    assert Path("reproduce/hostile.sqlite").is_file()
    assert not Path("reproduce/results.sqlite").exists()
    again = CliRunner().invoke(app, ["reproduce", "hostile", *OURS, *chosen, "--json"])
    assert "4 known already, 0 to run" in again.stderr
    told = json.loads(again.stdout)
    assert told["failed_cells"] == 0
    (clean,) = (
        r for r in told["rows"] if (r["stream"], r["column"], r["seeds"]) == ("clean", "default", 1)
    )
    assert clean["goal"] == 11.8


def test_latex_on_standard_output_is_nothing_but_latex(workplace: Path) -> None:
    text = run("table-ce-digits", *OURS, "--format", "latex")
    assert text.lstrip().startswith(r"\begin{table}")
    assert text.rstrip().endswith(r"\end{table}")


def test_a_dry_run_runs_nothing(workplace: Path) -> None:
    assert "fenchel data fetch mnist" in run("table-ce-digits", *OURS, "--dry-run")
    assert not Path("reproduce").exists()


def test_the_gaussians_leave_figure_numbers_and_choices(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = replace(gaussian_experiment.gaussian_settings("smoke"), draws=2)
    monkeypatch.setattr(gaussian_experiment, "gaussian_settings", lambda scale: few)
    text = run("fig-gaussian", "--scale", "smoke", "--out", "gaussians")
    for shift in ("0.6", "0.65", "0.7"):
        assert f"λ = {shift}, conjugate" in text
    for suffix in ("png", "svg", "pdf", "csv", "json"):
        assert Path(f"gaussians/fig-gaussian.{suffix}").stat().st_size > 100
    settings = json.loads(Path("gaussians/fig-gaussian.json").read_text())["settings"]
    assert settings["draws"] == 2
    assert (settings["low_variance"], settings["high_variance"]) == (1.0, 5.0)


def test_the_map_of_the_gaussians_leaves_figure_and_numbers(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smoke = gaussian_map.map_settings("smoke")
    few = replace(smoke, each=replace(smoke.each, draws=2))
    monkeypatch.setattr(gaussian_map, "map_settings", lambda scale: few)
    text = run("fig-gaussian-map", "--scale", "smoke", "--out", "map")
    assert "variances 1 to 5, rate 0.02" in text
    assert "panels hold together in" in text
    for suffix in ("png", "svg", "pdf", "csv"):
        assert Path(f"map/fig-gaussian-map.{suffix}").stat().st_size > 100
    rows = Path("map/fig-gaussian-map.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 * 3 * 3


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["table-polly"], "table-poly"),
        (["table-poly", "--scale", "smol"], "smoke"),
        (["table-poly", "--format", "html"], "markdown"),
        (["table-poly", "--checkpoints", "nowhere"], "nowhere"),
        (["table-poly", "--column", "source"], "--column"),
        (["hostile", "--checkpoints", "runs", "--column", "defalt"], "'default'"),
    ],
)
def test_a_mistake_gets_one_clear_line(
    arguments: list[str],
    word: str,
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["fenchel", "reproduce", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert word in capsys.readouterr().err
