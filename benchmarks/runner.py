"""What the runner costs beside its cells: planning, claiming, opening, storing.

    python benchmarks/runner.py [--images 600] [--root CIFAR-10-C] [--rounds 1] [--quick] [--json FILE]

Cells as in the CIFAR presets: ResNet-26, 32 x 32 images, batches of 200, one thread. The time outside
the cells is given as a share of the time inside, from one run; more than 5 % is an error. For comparison,
the processor time of the whole run against that of a bare loop over the same batches, which also holds
the scoring; it wavers by a few percent on a busy machine.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import fenchel
from common.reporting import parser_of, publish
from fenchel.bench.driver import run_plan
from fenchel.bench.executors import make_executor
from fenchel.bench.plan import Plan, make_plan
from fenchel.bench.sources import ingredients
from fenchel.bench.store import Store
from fenchel.bench.sweep import DataChoice, MethodChoice, Sweep
from fenchel.data.stream import Stream
from fenchel.models import Checkpoint, Metadata, build

PROTOCOL = (
    "Seconds inside and outside the cells of one run, and its processor seconds against those of a bare "
    "loop; one thread."
)
MOST = 0.05
CORRUPTIONS = ("fog", "contrast")
METHODS = ("source", "bn", "entropy", "conjugate")


def write_stand_in(folder: Path, images: int) -> None:
    """Noise in the public layout of CIFAR-10-C: the time of a cell does not depend on the pixels."""
    draws = np.random.default_rng(0)
    folder.mkdir(parents=True)
    np.save(folder / "labels.npy", np.tile(draws.integers(0, 10, images), 5))
    for name in CORRUPTIONS:
        pixels = draws.integers(0, 256, (5 * images, 32, 32, 3), dtype=np.uint8)
        np.save(folder / f"{name}.npy", pixels)


def save_network(path: Path) -> None:
    """An untrained ResNet-26 that says it was trained with PolyLoss."""
    metadata = Metadata(
        architecture="resnet26", loss="poly:epsilon=6.0", classes=tuple(map(str, range(10)))
    )
    Checkpoint(build("resnet26").eval(), metadata).save(path)


def bare_loop(plan: Plan) -> float:
    """Processor seconds of the same work with `fenchel.adapt` and a stream alone."""
    started = time.process_time()
    for job in plan.jobs:
        checkpoint, shifts = ingredients(job)
        adapted = fenchel.adapt(checkpoint, method=job.cell.method)
        stream = Stream(shifts=shifts, limit=job.cell.limit)
        wrong = sum(
            int((adapted(batch.inputs).argmax(-1) != batch.reveal_labels()).sum())
            for batch in stream
        )
        assert wrong <= job.samples
    return time.process_time() - started


def measure(root: Path, folder: Path, images: int) -> dict[str, float]:
    save_network(folder / "network.safetensors")
    sweep = Sweep(
        data=[DataChoice(name="cifar10-c", root=str(root), corruptions=CORRUPTIONS, limit=images)],
        checkpoints=["network.safetensors"],
        methods=[MethodChoice(name=name) for name in METHODS],
        folder=folder,
    )
    bare_loop(make_plan(sweep, limit=200))  # the first batches of a process are slow
    started, processor = time.perf_counter(), time.process_time()
    plan = make_plan(sweep)
    with Store(folder / "store.sqlite") as store, make_executor("serial") as executor:
        run_plan(plan, store, executor)
        total = time.perf_counter() - started
        used = time.process_time() - processor
        records = list(store.records())
    if any(record.status == "failed" for record in records):
        raise SystemExit(f"a cell failed: {records[0].error}")
    inside = sum(record.timings["adapting_seconds"] for record in records)
    bare = bare_loop(plan)
    return {
        "cells": len(records),
        "images_a_cell": records[0].samples,
        "seconds_inside_cells": inside,
        "seconds_outside": total - inside,
        "outside_share": (total - inside) / inside,
        "processor_seconds": used,
        "bare_loop_processor_seconds": bare,
        "over_bare_loop": used / bare - 1,
    }


def main() -> None:
    parser = parser_of(__doc__, rounds=1)
    parser.add_argument("--images", type=int, default=600, help="of each cell (600)")
    parser.add_argument("--root", type=Path, help="a real CIFAR-10-C; else noise of its shape")
    options = parser.parse_args()
    images = 20 if options.quick else options.images
    torch.set_num_threads(1)
    results = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as scratch:
            root = options.root
            if root is None:
                root = Path(scratch) / "data"
                write_stand_in(root / "CIFAR-10-C", images)
            results.append(measure(root, Path(scratch), images))
    publish("runner", PROTOCOL, results, options)
    if min(row["outside_share"] for row in results) > MOST and not options.quick:
        sys.exit(f"the runner may cost {MOST:.0%} at most")


if __name__ == "__main__":
    main()
