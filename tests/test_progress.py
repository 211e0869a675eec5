"""Progress: a live bar in a terminal, plain lines anywhere else."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace

import pytest

from fenchel import progress as module
from fenchel.progress import progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_plain_progress_prints_one_line_at_the_end(capsys, clock):
    with progress("reading", total=3) as bar:
        for _ in range(3):
            bar.advance()
    captured = capsys.readouterr()
    assert captured.err == "reading: 3/3 in 0 s\n"
    assert captured.out == ""


def test_plain_progress_prints_at_most_every_few_seconds(capsys, clock):
    with progress("reading", total=100) as bar:
        for done in range(100):
            clock[0] += 0.2
            bar.note(f"loss {done}")
            bar.advance()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "reading: 25/100 in 5 s, 15 s left loss 24",
        "reading: 50/100 in 10 s, 10 s left loss 49",
        "reading: 75/100 in 15 s, 5 s left loss 74",
        "reading: 100/100 in 20 s loss 99",
    ]


def test_progress_without_a_total_counts(capsys, clock):
    with progress("counting") as bar:
        bar.advance(2.5)
        bar.advance(2.5)
    assert capsys.readouterr().err == "counting: 5 in 0 s\n"


def test_an_error_in_the_block_is_passed_on(capsys):
    with pytest.raises(KeyError), progress("failing", total=2):
        raise KeyError
    assert capsys.readouterr().err == "", "what failed is not reported as finished"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_sees_a_live_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(module.sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress("reading", total=3) as bar:
        bar.advance(2)
        bar.note("two thirds")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert "reading" in shown
    assert "2/3" in shown
    assert "two thirds" in shown


def test_nothing_to_do_shows_nothing(capsys):
    with progress("counting", total=0) as bar:
        bar.note("unseen")
    assert capsys.readouterr().err == ""
