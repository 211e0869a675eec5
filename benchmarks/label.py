"""The PolyLoss label and objective: closed form against the dense solve that defines it.

    python benchmarks/label.py [--quick] [--json FILE]

The dense way builds the C x C matrix Dg(h)^T of every sample and solves for the label, within
autograd, as a reader of the definition would write it. Each measurement is a forward and backward
pass over a batch of 200 on one thread: time as the median CPU time of interleaved rounds, memory as
the growth of the peak resident set in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fenchel import PolyLoss

BATCH = 200
EPSILON = 6.0
CLASSES = (10, 100, 1000)
MINIMUM_SECONDS = 0.02
"""A measurement repeats a short pass until it lasts this long: clocks tick coarsely."""


def dense_objective(h: Tensor) -> Tensor:
    """f(h) - <y, g(h)> with y from torch.linalg.solve on Dg(h)^T y = grad f(h)."""
    z = h.softmax(-1)
    g = h - EPSILON * (1 - z)
    spread = torch.diag_embed(z) - z[:, :, None] * z[:, None, :]
    matrix = torch.eye(h.shape[-1], dtype=h.dtype) + EPSILON * spread
    label: Tensor = torch.linalg.solve(matrix, z)
    return h.logsumexp(-1) - (label * g).sum(-1)


def closed_objective(h: Tensor) -> Tensor:
    return PolyLoss(epsilon=EPSILON).conjugate(h)


WAYS: dict[str, Callable[[Tensor], Tensor]] = {"dense": dense_objective, "closed": closed_objective}
PASSES = ("forward", "forward and backward")


def logits(classes: int) -> Tensor:
    generator = torch.Generator().manual_seed(classes)
    return torch.randn(BATCH, classes, generator=generator)


def run_once(way: str, which: str, h: Tensor) -> Tensor:
    if which == "forward":
        with torch.no_grad():
            return WAYS[way](h)
    point = h.clone().requires_grad_()
    (slope,) = torch.autograd.grad(WAYS[way](point).mean(), point)
    return slope


def cpu_seconds(way: str, which: str, h: Tensor) -> float:
    """CPU time of one pass, from as many as fill the minimum."""
    passes, started = 0, time.process_time()
    while time.process_time() - started < MINIMUM_SECONDS:
        run_once(way, which, h)
        passes += 1
    return (time.process_time() - started) / passes


def peak_growth(way: str, which: str, classes: int) -> tuple[int, Tensor]:
    """Bytes by which the peak resident set grows over one pass in a fresh process; its result."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_measure_peak, args=(way, which, classes, sender))
    child.start()
    sender.close()
    growth, result = receiver.recv()
    child.join()
    return int(growth), torch.tensor(result)


def _measure_peak(way: str, which: str, classes: int, sender: Any) -> None:
    torch.set_num_threads(1)
    run_once(way, which, torch.randn(2, 10))  # libraries load on first use
    h = logits(classes)
    before = _peak_bytes(reset=True)
    result = run_once(way, which, h)
    sender.send((_peak_bytes() - before, result.tolist()))


def _peak_bytes(*, reset: bool = False) -> int:
    """The peak resident set, on Linux since the last reset (a child starts with its parent's)."""
    if sys.platform == "linux":
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes if sys.platform == "darwin" else 1024 * kilobytes


def measure(classes: int, which: str, rounds: int) -> dict[str, Any]:
    h = logits(classes)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, times in seconds.items():
            times.append(cpu_seconds(way, which, h))
    median = {way: statistics.median(times) for way, times in seconds.items()}
    peak, value = {}, {}
    for way in WAYS:
        peak[way], value[way] = peak_growth(way, which, classes)
    return {
        "classes": classes,
        "pass": which,
        "seconds": median,
        "bytes": peak,
        "times_faster": median["dense"] / median["closed"],
        "times_less_memory": peak["dense"] / max(peak["closed"], resource.getpagesize()),
        "largest_gap": float((value["dense"] - value["closed"]).abs().max()),
    }


def machine() -> str:
    return (
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"torch {torch.__version__}, one thread"
    )


def as_row(result: dict[str, Any]) -> str:
    seconds, size = result["seconds"], result["bytes"]
    return (
        f"| {result['classes']} | {result['pass']} "
        f"| {1e3 * seconds['dense']:.4g} | {1e3 * seconds['closed']:.4g} "
        f"| **{result['times_faster']:,.1f}** "
        f"| {size['dense'] / 2**20:.4g} | {size['closed'] / 2**20:.4g} "
        f"| **{result['times_less_memory']:,.1f}** | {result['largest_gap']:.1e} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round, for a first impression")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers here")
    arguments = parser.parse_args()
    # One thread: a fair comparison, and batched solves fail with two in some builds of torch.
    torch.set_num_threads(1)
    print(f"PolyLoss(epsilon={EPSILON}), batch {BATCH}, float32. {machine()}.\n")
    print(
        "| classes | pass | dense ms | closed ms | times faster "
        "| dense MiB | closed MiB | times less memory | largest gap |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    results = []
    for classes in CLASSES:
        rounds = 1 if arguments.quick else 3 if classes >= 1000 else 7
        for which in PASSES:
            results.append(measure(classes, which, rounds))
            print(as_row(results[-1]), flush=True)
    if arguments.json is not None:
        report = {"machine": machine(), "batch": BATCH, "epsilon": EPSILON, "results": results}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
