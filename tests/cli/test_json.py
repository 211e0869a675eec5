"""With `--json`, standard output is one JSON document that names the files and holds the numbers."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from fenchel.cli import app
from fenchel.cli.console import csv_rows, print_json
from fenchel.data import DATASETS
from fenchel.models import Checkpoint, Metadata, build
from fenchel.paper import PRESETS

pytest.importorskip("sklearn")

SWEEP = """\
checkpoints = ["net.safetensors"]

[data]
name = "sklearn-digits"
corruptions = ["fog"]
limit = 40

[stream]
batch_size = 20

[[methods]]
name = ["source", "conjugate"]
"""
CELLS = 2


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def document(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout, parse_constant=refuse_constant)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a tiny sweep that was run."""
    folder = tmp_path_factory.mktemp("sweep")
    torch.manual_seed(0)
    metadata = Metadata(
        architecture="digit_network",
        arguments={"width": 4},
        loss="poly:epsilon=6.0",
        classes=tuple("0123456789"),
    )
    Checkpoint(build("digit_network", width=4).eval(), metadata).save(folder / "net.safetensors")
    (folder / "sweep.toml").write_text(SWEEP)
    told = document("bench", "run", folder / "sweep.toml")
    assert (told["done"], told["ran"]) == (CELLS, CELLS)
    return Path(told["store"])


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds an example of CIFAR-10."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FENCHEL_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "data" / "cifar10"
    folder.mkdir(parents=True)
    DATASETS["cifar10"].write_example(folder)
    return tmp_path


def test_data_list_and_verify(cache: Path) -> None:
    assert {row["name"] for row in document("data", "list")} == set(DATASETS)
    findings = document("data", "verify", "cifar10", "--no-checksums")
    assert "readable" in {finding["status"] for finding in findings}


def test_data_make_and_show_name_their_files(cache: Path) -> None:
    made = document("data", "make", "cifar10-c", "-c", "fog", "-s", 5, "-w", 1, "--out", "made")
    assert {Path(file).name for file in made["files"]} == {"fog.npy", "labels.npy"}
    assert all(Path(file).is_file() for file in made["files"])
    shown = document("data", "show", "cifar10", "-c", "fog", "-s", 5, "--out", "fog.png")
    assert Path(shown["picture"]).is_file()


def test_data_fetch_names_the_folders(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(name: str, root: Path | None, *, force: bool, say: Any) -> Path:
        say(f"{name} is ready")
        return cache / name

    monkeypatch.setattr("fenchel.data.fetching.fetch.fetch", fetch)
    told = document("data", "fetch", "svhn")
    assert told == [{"name": "svhn", "folder": str(cache / "svhn")}]


def test_doctor() -> None:
    told = document("doctor")
    assert told["fenchel"]
    assert told["findings"]


def test_derive_names_its_plot(tmp_path: Path) -> None:
    told = document("derive", "cross-entropy", "--plot", tmp_path / "plot.png")
    assert Path(told["plot"]).is_file()
    assert document("derive", "cross-entropy")["plot"] is None


def test_bench_status_export_and_import(store: Path, tmp_path: Path) -> None:
    assert document("bench", "status", store)["done"] == CELLS
    records = document("bench", "export", store)["records"]
    assert len(records) == CELLS
    file = tmp_path / "all.json"
    told = document("bench", "export", store, "--out", file)
    assert told == {"file": str(file), "format": "json", "results": CELLS}
    assert json.loads(file.read_text())["records"] == records
    other = tmp_path / "other.sqlite"
    told = document("bench", "import", other, file)
    assert told == {"store": str(other), "imported": CELLS, "known": 0}


def test_an_export_is_not_json_and_csv_at_once(store: Path) -> None:
    with pytest.raises(ValueError, match="--format csv as well"):
        document("bench", "export", store, "--format", "csv")


def test_report_holds_errors_and_differences(store: Path, tmp_path: Path) -> None:
    told = document("report", store, "--out", tmp_path / "report.html")
    assert {row["method"] for row in told["errors"]} == {"source", "conjugate"}
    assert all(0 <= row["mean"] <= 100 for row in told["errors"])
    (difference,) = told["differences"]
    assert (difference["method"], difference["images"]) == ("source", 40)
    assert Path(told["page"]).is_file()
    assert told["files"] == []


def test_reproduce_lists_plans_and_runs(cache: Path) -> None:
    assert [row["name"] for row in document("reproduce", "list")] == list(PRESETS)
    (cache / "runs").mkdir()
    ours = ("--scale", "smoke", "--checkpoints", "runs")
    planned = document("reproduce", "table-ce-digits", *ours, "--dry-run")
    assert planned["cells"] == 0
    assert all(item["how"] for item in planned["missing"])
    assert not (cache / "reproduce").exists()
    told = document("reproduce", "table-ce-digits", *ours)
    assert {row["ours"] for row in told["rows"]} == {None}  # nothing to run it with is here
    assert 14.41 in {row["paper"] for row in told["rows"]}
    assert told["files"]
    assert all(Path(file).is_file() for file in told["files"])


def test_reproduce_plans_the_gaussians(cache: Path) -> None:
    told = document("reproduce", "fig-gaussian", "--scale", "smoke", "--dry-run")
    assert (told["preset"], told["scale"]) == ("fig-gaussian", "smoke")


def test_train_names_the_checkpoint(cache: Path) -> None:
    model = ("--model", "digit_network:width=4", "--epochs", 1, "--limit", 64, "--threads", 1)
    told = document("train", "--data", "sklearn-digits", *model, "--out", "run")
    assert Path(told["checkpoint"]).is_file()
    assert 0 <= told["metrics"]["test_accuracy"] <= 1


def test_json_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for the address of a service would otherwise wait for its end."""
    pipe = io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(pipe))  # as a pipe is: in blocks
        print_json({"url": "http://here"})
        assert json.loads(pipe.getvalue()) == {"url": "http://here"}


def test_numbers_that_json_lacks_become_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"error": float("nan"), "rows": [(1, float("inf"))]})
    assert json.loads(capsys.readouterr().out) == {"error": None, "rows": [[1, None]]}
    assert csv_rows("a,b,c\n1e-05,1_0,true\n") == [{"a": 1e-5, "b": "1_0", "c": "true"}]
