"""Runs that are interrupted, killed and continued lose nothing that was written."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fenchel.adapters.watch import Watch
from fenchel.cli import app, main


def started(call: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "fenchel", *call],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TERM": "dumb"},
    )


def wait_for_rows(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b"\n") > count:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    raise AssertionError("no rows appeared")


def rows_in(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def untimed(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "time"} for line in lines]


@pytest.fixture(scope="module")
def whole(made_digits: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The predictions of a run that nobody disturbed, with its log beside them."""
    folder = tmp_path_factory.mktemp("whole")
    files = ("--out", str(folder / "whole.csv"), "--log", str(folder / "whole.jsonl"))
    done = CliRunner().invoke(app, made_digits.slow_call(*files), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return folder / "whole.csv"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_with_a_summary_and_the_rows_so_far(
    digits: Any, command: Any, whole: Path, number: int, code: int
) -> None:
    call = digits.slow_call("--out", "p.csv", "--log", "p.jsonl")
    process = started(call)
    wait_for_rows(Path("p.csv"), 64, process)
    process.send_signal(number)
    told, complained = process.communicate(timeout=60)
    assert process.returncode == code, complained
    assert "Traceback" not in complained
    assert "Adaptation" in told
    assert "--resume" in complained
    rows = rows_in(Path("p.csv"))
    assert 64 <= len(rows) < 598
    assert rows == rows_in(whole)[: len(rows)]
    command(*call, "--resume")
    assert command.code == 0, command.err
    assert f"continuing after {len(rows)} of 598 images" in command.err
    assert Path("p.csv").read_bytes() == whole.read_bytes()
    assert untimed(Path("p.jsonl")) == untimed(whole.with_suffix(".jsonl"))


def test_kill_loses_at_most_the_batches_since_the_last_save(
    digits: Any, command: Any, whole: Path
) -> None:
    call = digits.slow_call("--out", "p.csv", "--log", "p.jsonl")
    process = started(call)
    wait_for_rows(Path("p.csv"), 96, process)
    process.kill()
    process.communicate(timeout=60)
    rows = rows_in(Path("p.csv"))
    assert rows == rows_in(whole)[: len(rows)]
    with Path("p.csv").open("ab") as file:
        file.write(b"0123.png,half a r")  # as a power cut might leave it
    command(*call, "--resume", "--json")
    assert command.code == 0, command.err
    assert Path("p.csv").read_bytes() == whole.read_bytes()
    assert untimed(Path("p.jsonl")) == untimed(whole.with_suffix(".jsonl"))


def test_a_finished_run_is_told_again_and_computes_nothing(digits: Any, command: Any) -> None:
    first = command(*digits.call("flat", "--json")).json()
    written = Path("predictions.csv").stat().st_mtime_ns
    again = command(*digits.call("flat", "--json", "--resume")).json()
    assert again == first
    assert Path("predictions.csv").stat().st_mtime_ns == written


def test_a_run_goes_on_under_its_own_options_alone(digits: Any, command: Any) -> None:
    command(*digits.call("flat"))
    command(*digits.call("flat", "--learning-rate", "0.5", "--resume"))
    assert command.code == 2
    assert "--learning-rate is 0.5 and was 0.01" in command.err
    assert "--force" in command.err
    command(*digits.call("flat", "--resume", "--force"))
    assert command.code == 2


def test_a_damaged_state_is_told(digits: Any, command: Any) -> None:
    command(*digits.call("flat"))
    Path("predictions.csv.state.safetensors").write_bytes(b"nothing")
    command(*digits.call("flat", "--resume"))
    assert command.code == 2
    assert "--force" in command.err


def test_an_error_within_a_batch_leaves_the_run_as_it_was_before_it(
    digits: Any, command: Any, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adapter has met the batch, but nothing of it is in the files: it is met again."""
    call = digits.slow_call("--out", "p.csv", "--log", "p.jsonl")
    predicted = Watch.after
    calls = iter(range(10**6))

    def fails_once(*args: Any) -> Any:
        if next(calls) == 4:
            raise RuntimeError("out of memory")
        return predicted(*args)

    with monkeypatch.context() as patched:
        patched.setattr(Watch, "after", fails_once)
        patched.setattr(sys, "argv", ["fenchel", *call])
        with pytest.raises(RuntimeError, match="out of memory"):
            main()
    assert 0 < len(rows_in(Path("p.csv"))) < 598
    command(*call, "--resume")
    assert command.code == 0, command.err
    assert Path("p.csv").read_bytes() == whole.read_bytes()
