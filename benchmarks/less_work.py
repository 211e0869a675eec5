"""What the options that do less work cost, and what they give up: CPU time and error on CIFAR-10-C.

    python benchmarks/less_work.py [--images 2000] [--csv FILE]

The PolyLoss network of the zoo adapts by its conjugate under each of the fifteen test corruptions at
severity 5, in batches of 100, by SGD at one rate for all options. CPU time is of the adapter's calls alone.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch

import fenchel
from common.measuring import machine
from fenchel.data.stream import Shift, Stream, corruption_shifts
from fenchel.files import write_atomically
from fenchel.progress import progress
from fenchel.report.layout import Layout, TableEntry, to_csv, to_markdown

NETWORK = "cifar10-resnet26-poly"
FULL = "full step"
OPTIONS: dict[str, dict[str, Any]] = {
    "source": {"method": "source"},
    "batch statistics alone": {"method": "bn"},
    FULL: {},
    'predict="before"': {"predict": "before"},
    "update_every=5": {"update_every": 5},
    'parameters="last:1"': {"parameters": "last:1"},
    'parameters="last:2"': {"parameters": "last:2"},
}


def run(options: dict[str, Any], shift: Shift, images: int, seed: int) -> tuple[float, float]:
    """Online error in percent, and CPU seconds."""
    adapter = fenchel.adapt(f"zoo:{NETWORK}", protect=False, **options)
    stream = Stream(shifts=[shift], batch_size=100, limit=images, seed=seed)
    wrong, seconds = 0, 0.0
    for batch in stream:
        started = time.process_time()
        logits = adapter(batch.inputs)
        seconds += time.process_time() - started
        wrong += int((logits.argmax(-1) != batch.reveal_labels()).sum())
    return 100 * wrong / stream.samples, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=2000, help="of each corruption")
    parser.add_argument("--learning-rate", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=0, help="of the order of the images")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the numbers here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(machine())
    settings = {"optimizer": "sgd", "learning_rate": arguments.learning_rate}
    shifts = corruption_shifts("cifar10-c")
    errors: dict[str, list[float]] = {name: [] for name in OPTIONS}
    seconds: dict[str, list[float]] = {name: [] for name in OPTIONS}
    with progress("adapting", total=len(shifts) * len(OPTIONS)) as bar:
        for shift in shifts:
            for name, options in OPTIONS.items():
                chosen = options if "method" in options else {**settings, **options}
                error, cpu = run(chosen, shift, arguments.images, arguments.seed)
                errors[name].append(error)
                seconds[name].append(cpu)
                bar.advance()
    rows = []
    for name in OPTIONS:
        ratios = [a / b for a, b in zip(seconds[name], seconds[FULL], strict=True)]
        rows.append((name, statistics.fmean(errors[name]), statistics.median(ratios)))
    entries = tuple(
        (TableEntry(n), TableEntry(f"{e:.2f}"), TableEntry(f"{c:.2f}")) for n, e, c in rows
    )
    print(to_markdown(Layout("", ("option", "error (%)", "CPU time of the full step"), entries)))
    if arguments.csv is not None:
        headings = ("option", "error", "of_full_step", "corruptions", "images", "rate", "seed")
        protocol = (len(shifts), arguments.images, arguments.learning_rate, arguments.seed)
        text = to_csv(headings, [(*row, *protocol) for row in rows])
        write_atomically(arguments.csv, text.encode())


if __name__ == "__main__":
    main()
