"""`fenchel adapt` in several processes that share one stream: the files of one process, whoever dies."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fenchel.cli.adapt_ranks import ended_at_once

READING = Path(__file__).with_name("shared_reading.py")
QUIET = {"OMP_NUM_THREADS": "1", "TERM": "dumb"}
COUNT = 280
NUMBERS = re.compile(r"confidence|source_confidence|entropy|p\d+")


def started(size: int, call: list[str]) -> list[subprocess.Popen[str]]:
    """The ranks as torchrun starts them, without torchrun, which would end those that are left."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "fenchel", *call],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                **QUIET,
                **place,
                "TORCHELASTIC_RUN_ID": "test",
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
            },
        )
        for rank in range(size)
    ]


def ended(ranks: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    said = [rank.communicate(timeout=120) for rank in ranks]
    return [(rank.returncode, *each) for rank, each in zip(ranks, said, strict=True)]


def wait_for_rows(path: Path, count: int, rank: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b"\n") > count:
            return
        assert rank.poll() is None, rank.communicate()
        time.sleep(0.01)
    raise AssertionError("no rows appeared")


def rows_in(path: str | Path) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def assert_same(found: list[dict[str, str]], expected: list[dict[str, str]]) -> None:
    """Single precision sums in another order: the same rows, numbers but for rounding."""
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        for name, value in theirs.items():
            if NUMBERS.fullmatch(name) and value:
                assert float(ours[name]) == pytest.approx(float(value), abs=2e-3)
            else:
                assert ours[name] == value, (ours, theirs)


@pytest.fixture
def pile(digits: Any, tmp_path: Path) -> Path:
    """Some of the digits, a few of them damaged."""
    place = tmp_path / "pile"
    place.mkdir()
    for number, file in enumerate(sorted((digits.folder / "flat").iterdir())[:COUNT]):
        content = file.read_bytes()
        (place / file.name).write_bytes(content[:40] if number in (3, 70, 71, 199) else content)
    return place


@pytest.fixture
def slow_call(digits: Any, pile: Path) -> list[str]:
    """`fenchel adapt` on them, slow enough to be disturbed."""
    call: list[str] = digits.slow_call("--out", "p.csv")
    call[call.index("--images") + 1] = str(pile)
    return call


def test_torchrun_writes_the_files_of_one_process(digits: Any, command: Any, pile: Path) -> None:
    call = digits.call(pile, "--batch-size", "32", "--probabilities")
    assert command(*call, "--out", "whole.csv", "--log", "whole.jsonl", "--json").code == 0
    whole = command.json()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    files = ["--out", "p.csv", "--log", "p.jsonl", "--report", "page.html"]
    files += ["--save-adapted", "adapted.safetensors", "--json"]
    done = subprocess.run(
        [*launcher, "-m", "fenchel", "--", *call, *files],  # torchrun has options like --log
        capture_output=True,
        text=True,
        env={**os.environ, **QUIET},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert_same(rows_in("p.csv"), rows_in("whole.csv"))
    told = json.loads(done.stdout)  # by one of them alone
    for name in ("images", "batches", "updates", "verdict", "unreadable", "compared"):
        assert told[name] == whole[name]
    assert told["unreadable"] == 4
    lines, expected = (Path(name).read_text().splitlines() for name in ("p.jsonl", "whole.jsonl"))
    assert len(lines) == len(expected)
    assert Path("page.html").exists()
    assert Path("adapted.safetensors").exists()


def test_a_signal_ends_all_ranks_a_death_ends_the_others_and_any_number_goes_on(
    slow_call: list[str], command: Any
) -> None:
    two = started(2, slow_call)
    wait_for_rows(Path("p.csv"), 32, two[0])
    two[1].send_signal(signal.SIGTERM)
    found = ended(two)
    assert [code for code, _, _ in found] == [143, 143], found
    assert "--resume" in found[0][2]
    assert found[1][1:] == ("", "")  # the first one speaks for all
    count = len(rows_in("p.csv"))

    three = started(3, [*slow_call, "--resume"])
    wait_for_rows(Path("p.csv"), count + 32, three[0])
    three[2].kill()
    found = ended(three)
    assert [code for code, _, _ in found] == [1, 1, -signal.SIGKILL], found
    assert f"continuing after {count} of {COUNT} images" in found[0][2]
    for _, _, complained in found[:2]:
        assert "all 3 processes of a group must live" in complained
        assert "--resume" in complained
        assert "Traceback" not in complained
    assert count + 32 <= len(rows_in("p.csv")) < COUNT

    assert command(*slow_call, "--resume").code == 0
    assert command(*slow_call, "--out", "whole.csv").code == 0
    assert_same(rows_in("p.csv"), rows_in("whole.csv"))


def test_several_streams_under_torchrun_are_refused(
    digits: Any, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(os, "_exit", sys.exit)  # this process goes on
    assert command(*digits.call("flat", "--shards", "2")).code == 2
    assert "torchrun's processes share one stream" in command.err


def test_batches_that_are_read_together_are_those_of_one_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(READING), "3", str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, **QUIET},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda: None, 0),
        (lambda: sys.exit(), 0),
        (lambda: sys.exit(4), 4),
        (lambda: sys.exit("a message"), 1),
        (lambda: 1 / 0, 1),
    ],
    ids=["its end", "exit", "exit code", "message", "exception"],
)
def test_a_rank_ends_with_its_exit_code_and_leaves_the_interpreter_as_it_is(
    monkeypatch: pytest.MonkeyPatch, end: Callable[[], object], code: int
) -> None:
    """Threads of gloo may still want the interpreter; taking it down aborted one rank in ten."""
    found: list[int] = []
    monkeypatch.setattr(os, "_exit", found.append)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "any")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with ended_at_once():
        end()
    assert found == [code]


def test_a_process_by_itself_ends_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail("ended at once"))
    with pytest.raises(SystemExit), ended_at_once():
        sys.exit(3)
