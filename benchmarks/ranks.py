"""What a batch costs when processes share it: none, one and two ranks of a group.

    python benchmarks/ranks.py [--batch-size 128] [--rounds 5] [--quick] [--json FILE]

Two processes of one torch thread each take turns at whole batches: the first by itself without a group, the
first in a group of one, then both in a group of two, each with half of the batch. Whoever has nothing to
do waits meanwhile. Ratios are to no group, of the same run; at best, two ranks reach one half.
"""

from __future__ import annotations

import json
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import fenchel
from common.measuring import Timing
from common.reporting import parser_of, publish
from fenchel.models import build
from fenchel.performance import retain_freed_memory

PROTOCOL = (
    "Thin ResNet-26 on gloo, one thread of torch per rank, freed memory kept as the `fenchel` command does; "
    "seconds of the clock per batch (medians) and ratios within interleaved rounds, with their range."
)
METHODS = ("conjugate", "protected")
WAYS = ("no group", "1 rank", "2 ranks")


def main() -> None:
    parser = parser_of(__doc__, rounds=5)
    parser.add_argument("--batch-size", type=int, default=128)
    options = parser.parse_args()
    size, batches = (16, 1) if options.quick else (options.batch_size, 5)
    with tempfile.TemporaryDirectory() as name:
        arguments = (name, size, batches, options.rounds)
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            for ended in [pool.submit(run_rank, rank, *arguments) for rank in range(2)]:
                ended.result()
        seconds = json.loads((Path(name) / "seconds.json").read_text())
    publish(
        "ranks", PROTOCOL, [row for method in METHODS for row in rows(method, seconds)], options
    )


def rows(method: str, seconds: dict[str, list[float]]) -> list[dict[str, Any]]:
    """One row per way to run a method."""
    timings = {way: Timing(tuple(seconds[f"{method}, {way}"])) for way in WAYS}
    return [
        {
            "method": method,
            "processes": way,
            "milliseconds_a_batch": 1000 * timing.median,
            "of_no_group": timing.over(timings["no group"]),
        }
        for way, timing in timings.items()
    ]


def run_rank(rank: int, folder: str, size: int, batches: int, rounds: int) -> None:
    """One of the two processes; the first writes down how long everything took."""
    torch.set_num_threads(1)
    retain_freed_memory()
    dist.init_process_group("gloo", f"file://{folder}/store", world_size=2, rank=rank)
    groups = {"no group": None, "1 rank": dist.new_group([0]), "2 ranks": dist.group.WORLD}
    torch.manual_seed(0)
    network, images = build("resnet26").eval(), torch.rand(size, 3, 32, 32)
    seconds: dict[str, list[float]] = {}
    for method in METHODS:
        adapters = {
            way: fenchel.adapt(network, trained_with="poly:epsilon=6", method=method, group=group)
            for way, group in groups.items()
            if rank == 0 or way == "2 ranks"
        }
        for turn in range(rounds + 1):
            for way in WAYS:
                dist.barrier()
                began = time.perf_counter()
                mine = images.chunk(2)[rank] if way == "2 ranks" else images
                for _ in range(batches if way in adapters else 0):
                    adapters[way](mine)
                if turn:  # the first one warms up
                    took = (time.perf_counter() - began) / batches
                    seconds.setdefault(f"{method}, {way}", []).append(took)
    dist.barrier()
    if rank == 0:
        (Path(folder) / "seconds.json").write_text(json.dumps(seconds))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
