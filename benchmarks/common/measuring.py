"""Measuring on noisy machines: interleaved rounds, CPU time, medians and ranges, ratios in one run."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import torch

T = TypeVar("T")


@dataclass(frozen=True)
class Timing:
    """CPU seconds of one way of doing something, round by round."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def over(self, other: Timing) -> tuple[float, float, float]:
        """The median and range of the ratios to another way, round by round."""
        ratios = [a / b for a, b in zip(self.seconds, other.seconds, strict=True)]
        return statistics.median(ratios), min(ratios), max(ratios)


def interleaved(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Timing]:
    """CPU time of every way, all of them once a round, after a round that warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, run in ways.items():
            started = time.process_time()
            run()
            if turn:
                seconds[name].append(time.process_time() - started)
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


def in_fresh_process(function: Callable[..., T], *arguments: object) -> T:
    """What a function of the script returns in a process that has done nothing else."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def peak_growth(run: Callable[[], object]) -> int:
    """Bytes by which the peak resident set of this process grows over one call (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak_bytes()
    run()
    return _peak_bytes() - before


def _peak_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def machine() -> str:
    """One line on where the numbers come from."""
    cores = torch.get_num_threads()
    return (
        f"{platform.system()} {platform.machine()}, {processor()}, {cores} torch threads, "
        f"Python {platform.python_version()}, torch {torch.__version__}"
    )


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else "unknown processor"
