"""A sweep as it runs: a live table on a terminal, plain lines anywhere else."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Collection, Sequence
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fenchel.bench.record import Record
from fenchel.bench.sources import Job

PLAIN_SECONDS = 5.0


class Watcher:
    """Receives the events of a sweep; this base class shows nothing."""

    def __init__(self) -> None:
        self.total = self.done = self.failed = 0
        self._samples: dict[str, int] = {}
        self._left: set[str] = set()
        self._fresh_samples = 0
        self._started = time.monotonic()

    def begin(self, jobs: Sequence[Job], known: Collection[str]) -> None:
        """The cells of the sweep, and the keys of those that have a record already."""
        self.total, self.done = len(jobs), len(known)
        self._samples = {job.cell.key: job.samples for job in jobs}
        self._left = set(self._samples) - set(known)
        self._started = time.monotonic()

    def finished(self, record: Record) -> None:
        """Called when a cell has a record."""
        self.failed += record.status == "failed"
        self.done += 1
        if record.key in self._left:
            self._left.remove(record.key)
            self._fresh_samples += self._samples[record.key]

    def others(self, count: int) -> None:
        """Called when no cell is left to begin: other drivers run the last `count`."""

    def remaining_seconds(self) -> float:
        """The seconds left, from the samples per second so far; NaN before the first cell."""
        if not self._fresh_samples:
            return math.nan
        speed = (time.monotonic() - self._started) / self._fresh_samples
        return speed * sum(self._samples[key] for key in self._left)

    def __enter__(self) -> Watcher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


class PlainWatcher(Watcher):
    """A line for every failure, and one every few seconds for the rest."""

    def __init__(self, interval: float = PLAIN_SECONDS) -> None:
        super().__init__()
        self._interval = interval
        self._told = -math.inf
        self._told_of_others = False

    def begin(self, jobs: Sequence[Job], known: Collection[str]) -> None:
        super().begin(jobs, known)
        _say(f"{self.total} cells, {self.done} known already, {len(self._left)} to run")

    def finished(self, record: Record) -> None:
        super().finished(record)
        if record.status == "failed":
            _say(f"failed: {cell_title(record)}: {record.error}")
        if time.monotonic() - self._told >= self._interval or self.done == self.total:
            self._told = time.monotonic()
            _say(f"{progress_line(self)}; last: {cell_title(record)} {outcome(record)}")

    def others(self, count: int) -> None:
        if not self._told_of_others:
            self._told_of_others = True
            _say(f"waiting for {count} cells that another driver runs")


class LiveWatcher(Watcher):
    """A table that changes in place: one row per method."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._errors: dict[str, list[float]] = {}
        self._failures: list[tuple[str, str]] = []
        self._planned: dict[str, int] = {}
        self._finished: dict[str, int] = {}
        self._note = ""
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=4)

    def begin(self, jobs: Sequence[Job], known: Collection[str]) -> None:
        super().begin(jobs, known)
        for job in jobs:
            method = job.cell.method
            self._planned[method] = self._planned.get(method, 0) + 1
            self._finished[method] = self._finished.get(method, 0) + (job.cell.key in known)

    def finished(self, record: Record) -> None:
        super().finished(record)
        method = record.cell.method
        self._finished[method] += 1
        self._note = f"last: {cell_title(record)} {outcome(record)}"
        if record.status == "failed":
            self._failures.append((method, f"{cell_title(record)}: {record.error}"))
        else:
            self._errors.setdefault(method, []).append(record.error_percent)

    def others(self, count: int) -> None:
        self._note = f"waiting for {count} cells that another driver runs"

    def _table(self) -> RenderableType:
        table = Table("method", "done", "failed", "mean error %", box=None, header_style="bold")
        for method, planned in self._planned.items():
            errors = self._errors.get(method, [])
            mean = f"{sum(errors) / len(errors):.2f}" if errors else ""
            failed = sum(name == method for name, _ in self._failures)
            table.add_row(method, f"{self._finished[method]}/{planned}", str(failed), mean)
        failures = [Text(f"failed: {line}", "red") for _, line in self._failures[-3:]]
        return Group(table, *failures, Text(progress_line(self), "bold"), Text(self._note, "dim"))

    def __enter__(self) -> LiveWatcher:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()


def make_watcher() -> Watcher:
    """The watcher that suits standard error: a live table for a terminal, lines otherwise."""
    return LiveWatcher(Console(stderr=True)) if sys.stderr.isatty() else PlainWatcher()


def progress_line(watcher: Watcher) -> str:
    """How many cells are done, how many failed, and the time left."""
    left = watcher.remaining_seconds()
    eta = "" if math.isnan(left) else f", {duration(left)} left"
    return f"{watcher.done}/{watcher.total} done, {watcher.failed} failed{eta}"


def cell_title(record: Record) -> str:
    """A cell in a few words."""
    cell = record.cell
    return f"{cell.data}, {cell.shift_title}, {cell.method}, seed {cell.seed}"


def outcome(record: Record) -> str:
    """The error of a record, or that it failed."""
    return "failed" if record.status == "failed" else f"{record.error_percent:.2f} %"


def duration(seconds: float) -> str:
    """A duration in words.

    >>> duration(42), duration(3725)
    ('42 s', '1 h 02 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
