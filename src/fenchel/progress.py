"""Progress that suits where it is shown: a live bar in a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

PLAIN_INTERVAL_SECONDS = 5.0


class Bar:
    """One task under way. `advance` moves it, `note` shows a short status beside it."""

    def advance(self, amount: float = 1) -> None:
        """Report `amount` more units as done."""

    def note(self, text: str) -> None:
        """Show `text` (a loss, a file name) beside the bar."""


class _LiveBar(Bar):
    def __init__(self, progress: Progress, description: str, total: float | None) -> None:
        self._progress = progress
        self._task = progress.add_task(description, total=total, note="")

    def advance(self, amount: float = 1) -> None:
        self._progress.advance(self._task, amount)

    def note(self, text: str) -> None:
        self._progress.update(self._task, note=text)


class _PlainBar(Bar):
    """A line at most every few seconds, and one at the end."""

    def __init__(self, description: str, total: float | None) -> None:
        self._description, self._total = description, total
        self._done = 0.0
        self._shown = -1.0
        self._note = ""
        self._started = self._printed = time.monotonic()

    def advance(self, amount: float = 1) -> None:
        self._done += amount
        if time.monotonic() - self._printed >= PLAIN_INTERVAL_SECONDS:
            self.print()

    def finish(self) -> None:
        if self._shown != self._done:
            self.print()

    def note(self, text: str) -> None:
        self._note = text

    def print(self) -> None:
        self._printed, self._shown = time.monotonic(), self._done
        elapsed = self._printed - self._started
        count = f"{self._done:.0f}" + (f"/{self._total:.0f}" if self._total else "")
        remaining = ""
        if self._total and 0 < self._done < self._total:
            remaining = f", {elapsed / self._done * (self._total - self._done):.0f} s left"
        line = f"{self._description}: {count} in {elapsed:.0f} s{remaining} {self._note}"
        print(line.rstrip(), file=sys.stderr, flush=True)


@contextmanager
def progress(description: str, total: float | None = None) -> Iterator[Bar]:
    """A bar on standard error for the work in the block; none where nothing is left to do (`total=0`).

    >>> with progress("counting", total=3) as bar:
    ...     for _ in range(3):
    ...         bar.advance()
    """
    if total == 0:
        yield Bar()
    elif sys.stderr.isatty():
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=Console(stderr=True), transient=False) as live:
            yield _LiveBar(live, description, total)
    else:
        plain = _PlainBar(description, total)
        yield plain
        plain.finish()
