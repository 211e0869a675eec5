"""`fenchel bench` and `fenchel tune`, called as a user calls them."""

import csv
import io
import json
import os
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from fenchel.cli import app, main
from fenchel.models import Checkpoint, Metadata, build

SWEEP = """\
checkpoints = ["poly.safetensors"]

[data]
name = "sklearn-digits"
corruptions = ["fog", "contrast"]
limit = 60

[stream]
batch_size = 30

[[methods]]
name = ["source", "soft", "conjugate"]
"""
CELLS = 6


@pytest.fixture
def sweep(tmp_path):
    arguments = {"width": 4}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build("digit_network", **arguments)
    metadata = Metadata(
        architecture="digit_network",
        arguments=arguments,
        loss="poly:epsilon=6.0",
        classes=tuple(str(k) for k in range(10)),
    )
    Checkpoint(model.eval(), metadata).save(tmp_path / "poly.safetensors")
    path = tmp_path / "sweep.toml"
    path.write_text(SWEEP)
    return path


def call(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def mistake(monkeypatch, capsys, *arguments):
    """What a user's mistake says, through the real entry point."""
    monkeypatch.setattr(sys, "argv", ["fenchel", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    told = capsys.readouterr().err
    assert "Traceback" not in told
    return told


def test_a_sweep_runs_into_a_store_beside_it(sweep):
    result = call("bench", sweep)
    assert f"{CELLS} cells: {CELLS} done, 0 failed; {CELLS} run now" in result.output
    assert f"{CELLS}/{CELLS} done, 0 failed" in result.stderr
    assert (sweep.parent / "sweep.sqlite").exists()
    again = call("bench", sweep)
    assert "0 run now" in again.output


def test_a_dry_run_counts_estimates_and_writes_nothing(sweep):
    before = sorted(sweep.parent.iterdir())
    output = call("bench", sweep, "--dry-run").output
    assert f"{CELLS} cells: 0 done, 0 failed, {CELLS} to run" in output
    assert "about" in output
    assert sorted(sweep.parent.iterdir()) == before
    facts = json.loads(call("bench", "--dry-run", "--json", sweep).stdout)
    assert (facts["cells"], facts["to_run"]) == (CELLS, CELLS)
    assert facts["seconds"] > 0


def test_a_limit_makes_other_cells(sweep):
    call("bench", sweep, "--limit", 20)
    facts = json.loads(call("bench", sweep, "--limit", 20, "--json").stdout)
    assert (facts["cells"], facts["ran"]) == (CELLS, 0)
    assert json.loads(call("bench", sweep, "--json").stdout)["ran"] == CELLS


def test_export_and_import_and_status(sweep, tmp_path):
    call("bench", sweep)
    text = call("bench", "export", sweep).stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == CELLS
    assert {row["status"] for row in rows} == {"done"}
    call("bench", "export", tmp_path / "sweep.sqlite", "--out", tmp_path / "all.json", "--timings")
    records = json.loads((tmp_path / "all.json").read_text())["records"]
    assert all(record["timings"]["seconds"] > 0 for record in records)
    again = tmp_path / "again.sqlite"
    imported = call("bench", "import", again, tmp_path / "all.json").output
    assert f"{CELLS} results imported, 0 were there already" in imported
    assert call("bench", "export", again, "--format", "csv").stdout == text
    call("bench", "export", again, "--out", tmp_path / "all.json.gz")
    compressed = tmp_path / "compressed.sqlite"
    assert (
        f"{CELLS} results" in call("bench", "import", compressed, tmp_path / "all.json.gz").output
    )
    assert json.loads(call("bench", sweep, "--store", again, "--json").stdout)["ran"] == 0
    assert f"{CELLS} cells: {CELLS} done" in call("bench", "status", again).output


def test_a_failing_cell_shows_in_the_exit_code_and_can_be_retried(sweep):
    """The network is for grey images of any size, so colour makes its cells fail."""
    good = sweep.read_text()
    sweep.write_text(good.replace('"sklearn-digits"', '"sklearn-digits:digits=True"'))
    result = call("bench", sweep, code=1)
    assert f"0 done, {CELLS} failed" in result.output
    shown = call("bench", "status", sweep)
    assert "failed: sklearn-digits:digits=True, fog 5" in shown.output
    facts = json.loads(call("bench", "status", sweep, "--json").stdout)
    assert len(facts["failures"]) == CELLS
    assert json.loads(call("bench", sweep, "--json", code=1).stdout)["ran"] == 0
    again = json.loads(call("bench", sweep, "--json", "--retry-failed", code=1).stdout)
    assert again["ran"] == CELLS


def test_tune_writes_a_file_that_bench_reads(sweep, tmp_path):
    grid = ["--learning-rate", 0.1, "--learning-rate", 0.001, "--temperature", 1]
    output = call("tune", sweep, *grid, "--optimizer", "adam", "--limit", 40).output
    assert "conjugate" in output
    tuned = json.loads((tmp_path / "sweep-tuned.json").read_text())
    assert {choice["method"] for choice in tuned["choices"]} == {"soft", "conjugate"}
    assert {choice["trials"] for choice in tuned["choices"]} == {2}
    assert tuned["protocol"]["corruptions"] == [
        "speckle_noise",
        "gaussian_blur",
        "spatter",
        "saturate",
    ]
    told = json.loads(
        call("tune", sweep, *grid, "--optimizer", "adam", "--limit", 40, "--json").stdout
    )
    assert told["file"] == str(tmp_path / "sweep-tuned.json")
    shown = {choice["method"]: choice["error_percent"] for choice in told["choices"]}
    assert shown == {choice["method"]: choice["validation_error"] for choice in tuned["choices"]}
    sweep.write_text(SWEEP + 'tuned = "sweep-tuned.json"\n')
    call("bench", sweep)
    rows = list(csv.DictReader(io.StringIO(call("bench", "export", sweep).stdout)))
    adapted = [row for row in rows if row["method"] != "source"]
    assert {row["optimizer"] for row in adapted} == {"adam"}
    assert all("tuned on speckle_noise" in row["asked"] for row in adapted)
    counted = call("tune", sweep, "--dry-run", "--store", tmp_path / "other.sqlite").output
    assert f"{2 * 40 * 4} cells" in counted


def test_tune_with_a_final_runs_the_best_of_each_rate_on_longer_streams(sweep, tmp_path):
    rates = ("--learning-rate", 0.1, "--learning-rate", 0.001)
    grid = (*rates, "--temperature", 1, "--temperature", 2, "--optimizer", "sgd")
    tuning = ("tune", sweep, *grid, "--limit", 20, "--final-limit", 40)
    cells = 2 * 4 * (4 + 2)  # methods, corruptions, trials of both stages
    assert json.loads(call(*tuning, "--dry-run", "--json").stdout)["to_run"] == cells
    call(*tuning)
    told = json.loads(call(*tuning, "--dry-run", "--json").stdout)
    assert (told["done"], told["to_run"]) == (cells, 0)
    tuned = json.loads((tmp_path / "sweep-tuned.json").read_text())
    assert {choice["trials"] for choice in tuned["choices"]} == {2}
    assert tuned["protocol"]["limit"] == [40]
    assert tuned["protocol"]["screening_limit"] == 20
    assert tuned["protocol"]["trials_a_method"] == 4


def test_two_drivers_on_one_store_run_every_cell_once(sweep):
    command = [sys.executable, "-m", "fenchel", "bench", str(sweep), "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    drivers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        for _ in range(2)
    ]
    told = [driver.communicate(timeout=120) for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0], told
    facts = [json.loads(output) for output, _ in told]
    assert sum(fact["ran"] for fact in facts) == CELLS
    assert [fact["done"] for fact in facts] == [CELLS, CELLS]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("corruptions", "corruption"), "line 5: unknown key of [data] 'corruption'"),
        (('"soft"', '"sft"'), "Did you mean 'soft'?"),
        (('"poly.safetensors"', '"none.safetensors"'), "none.safetensors"),
    ],
)
def test_mistakes_in_a_sweep_are_one_line(sweep, monkeypatch, capsys, change, told):
    sweep.write_text(SWEEP.replace(*change))
    assert told in mistake(monkeypatch, capsys, "bench", sweep)


def test_other_mistakes_are_one_line_too(sweep, monkeypatch, capsys):
    assert "Did you mean 'serial'" in mistake(monkeypatch, capsys, "bench", sweep, "-x", "serail")
    assert "there is no store" in mistake(monkeypatch, capsys, "bench", "status", sweep)
    store = sweep.with_suffix(".sqlite")
    store.write_bytes(b"rubbish")
    for verb in (["bench", sweep], ["bench", "export", sweep], ["bench", "import", store, sweep]):
        assert "is damaged or something else" in mistake(monkeypatch, capsys, *verb)
    assert store.read_bytes() == b"rubbish"
