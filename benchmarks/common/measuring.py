"""Measuring on noisy machines: interleaved rounds, CPU time, medians and ranges, ratios in one run."""

from __future__ import annotations

import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import torch

T = TypeVar("T")
K = TypeVar("K")
Ways = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Timing:
    """CPU seconds of one variant of a computation, round by round."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def over(self, other: Timing) -> tuple[float, float, float]:
        """The median and range of the ratios to another variant, round by round."""
        ratios = [a / b for a, b in zip(self.seconds, other.seconds, strict=True)]
        return statistics.median(ratios), min(ratios), max(ratios)


def cpu_seconds(run: Callable[[], object], at_least: float = 0.0) -> float:
    """CPU time of one call, from as many as fill `at_least` seconds: clocks tick coarsely."""
    calls, started = 0, time.process_time()
    while not calls or time.process_time() - started < at_least:
        run()
        calls += 1
    return (time.process_time() - started) / calls


def interleaved(ways: Ways, rounds: int, at_least: float = 0.0) -> dict[str, Timing]:
    """CPU time of every variant. Each runs once per round, after a round that warms up."""
    measures = {name: lambda run=run: cpu_seconds(run, at_least) for name, run in ways.items()}
    return interleaved_measures(measures, rounds)


def interleaved_measures(measures: Mapping[K, Callable[[], float]], rounds: int) -> dict[K, Timing]:
    """The same for ways that measure themselves, in other processes perhaps."""
    seconds: dict[K, list[float]] = {name: [] for name in measures}
    for turn in range(rounds + 1):
        for name, measure in measures.items():
            found = measure()
            if turn:
                seconds[name].append(found)
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


def in_fresh_process(function: Callable[..., T], *arguments: object) -> T:
    """What a function of the script returns in a process that has done nothing else."""
    context = get_context("forkserver")
    context.set_forkserver_preload(
        ["torch"]
    )  # whose import takes longer than most of what is measured
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


@dataclass(frozen=True)
class Growth:
    """Bytes by which the resident set grew over a call: at its peak, and what stayed."""

    peak: int
    stayed: int


def memory_growth(run: Callable[[], object], times: int = 1) -> Growth:
    """How some calls let the resident set of this process grow."""
    if sys.platform == "linux":  # a child starts with the peak of its parent
        Path("/proc/self/clear_refs").write_text("5")
    before = resident_bytes()
    for _ in range(times):
        run()
    return Growth(peak_bytes() - before, resident_bytes() - before)


def peak_bytes() -> int:
    """The peak resident set, on Linux since it was last reset."""
    if sys.platform == "linux":
        return _status("VmHWM")
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes if sys.platform == "darwin" else 1024 * kilobytes


def resident_bytes() -> int:
    """The resident set now (where the system tells; else the peak)."""
    return _status("VmRSS") if sys.platform == "linux" else peak_bytes()


def _status(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition(f"{field}:")[2].split()[0])


def machine() -> str:
    """One line on where the numbers come from."""
    return (
        f"{platform.system()} {platform.machine()}, {processor()}, "
        f"Python {platform.python_version()}, torch {torch.__version__}"
    )


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else "unknown processor"
