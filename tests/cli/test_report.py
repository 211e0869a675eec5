"""`fenchel report` on a store that a real sweep left."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from fenchel.bench.driver import run_plan
from fenchel.bench.executors import make_executor
from fenchel.bench.plan import make_plan
from fenchel.bench.store import Store
from fenchel.bench.sweep import DataChoice, MethodChoice, StreamChoice, Sweep
from fenchel.cli import app, main
from fenchel.models import Checkpoint, Metadata, build

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods, two corruptions, two seeds, of a network that was never trained."""
    folder = tmp_path_factory.mktemp("sweep")
    torch.manual_seed(0)
    metadata = Metadata(
        architecture="digit_network",
        arguments={"width": 4},
        loss="cross-entropy",
        classes=tuple("0123456789"),
        data="sklearn-digits",
    )
    Checkpoint(build("digit_network", width=4), metadata).save(folder / "net.safetensors")
    data = DataChoice(name="sklearn-digits", corruptions=("fog", "contrast"), limit=100)
    sweep = Sweep(
        data=[data],
        checkpoints=["net.safetensors"],
        methods=[MethodChoice(name=name) for name in ("source", "bn", "soft", "conjugate")],
        seeds=(0, 1),
        stream=StreamChoice(batch_size=50),
        folder=folder,
    )
    with Store(folder / "sweep.sqlite") as store, make_executor("serial") as executor:
        assert run_plan(make_plan(sweep), store, executor).failed == 0
    return folder


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["report", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_report_prints_the_table_and_writes_the_page(folder: Path) -> None:
    page = folder / "out" / "report.html"
    text = run(str(folder / "sweep.sqlite"), "--out", str(page))
    errors, tests = text.split("Error minus that of conjugate")
    assert [line.split()[0] for line in errors.strip().splitlines()[-4:]] == [
        "source", "bn", "soft", "conjugate",
    ]  # fmt: skip
    assert [line.split()[0] for line in tests.splitlines()[-3:]] == ["source", "bn", "soft"]
    html = page.read_text(encoding="utf-8")
    assert "12 cells done" in html
    assert "conjugate = soft" in html


def test_figures_and_tables_go_to_a_folder(folder: Path) -> None:
    figures = folder / "figures"
    run(str(folder / "sweep.sqlite"), "-o", str(folder / "r.html"), "--figures", str(figures))
    names = {path.name for path in figures.iterdir()}
    assert {
        "1-corruptions.pdf",
        "1-online-error.svg",
        "1-task-loss.png",
        "1-tests.tex",
        "errors.csv",
    } <= names


def test_tables_are_printed_as_csv(folder: Path) -> None:
    text = run(str(folder / "sweep.sqlite"), "-o", str(folder / "r.html"), "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 4 * 3
    by_method = {row["method"]: float(row["mean"]) for row in rows if row["shift"] == "mean"}
    assert by_method["soft"] == by_method["conjugate"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["nowhere.sqlite"], "nowhere.sqlite"),
        (["{folder}/net.safetensors"], "damaged or something else"),
        (["{folder}/sweep.sqlite", "--format", "word"], "markdown"),
        (["{folder}/sweep.sqlite", "--reference", "conjugat"], "conjugate"),
    ],
)
def test_a_mistake_gets_one_clear_line(
    arguments: list[str],
    word: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [argument.format(folder=folder) for argument in arguments]
    monkeypatch.setattr(sys, "argv", ["fenchel", "report", *given])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert word in capsys.readouterr().err
