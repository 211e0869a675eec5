"""Images a second of the training loop beside the bare forward and backward pass.

    python benchmarks/train.py [--model resnet26] [--steps 8] [--rounds 5] [--quick] [--json FILE]

Rounds alternate, so that both sides meet the same machine. The training side is the real one:
reading, augmentation, optimiser, clipping, running scores and the saves that fall due. Fails if
the median ratio is below 85 %.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from common.reporting import parser_of, publish
from fenchel.data import from_arrays
from fenchel.losses import CrossEntropy, Loss, parse
from fenchel.models import build
from fenchel.train import TrainingRun, preset, train
from fenchel.train.reporting import Reporter

PROTOCOL = (
    "The training loop beside forward and backward alone, in alternating rounds: images a second by the "
    "clock, share by CPU time (medians and range)."
)
LEAST_SHARE = 0.85


class Clock(Reporter):
    """The moments at which steps ended, without set-up and without the end of the epoch."""

    def __init__(self) -> None:
        self.moments: list[tuple[float, float]] = []

    def step(self, images: int) -> None:
        """Note the wall-clock and the processor's time, the latter without the kernel's part:
        which side pays for handing freed memory back and forth is chance.
        """
        self.moments.append((time.perf_counter(), os.times().user))

    def seconds(self) -> tuple[float, float]:
        """Wall-clock and processor seconds of all steps but the first, which warms up."""
        (wall, cpu), (wall_end, cpu_end) = self.moments[0], self.moments[-1]
        return wall_end - wall, cpu_end - cpu


def time_bare(model: str, loss: Loss, batch: int, steps: int) -> tuple[float, float]:
    """Forward and backward alone, on one batch that never changes."""
    clock = Clock()
    network = build(model, classes=10)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.rand(batch, 3, 32, 32).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (batch,))
    for _ in range(steps + 1):
        network.zero_grad(set_to_none=True)
        torch.autograd.backward(loss(network(images), labels).mean())
        clock.step(batch)
    return clock.seconds()


def time_training(model: str, loss: Loss, batch: int, steps: int) -> tuple[float, float]:
    """The training loop on as many random images as the steps need."""
    clock, draws = Clock(), np.random.default_rng(0)
    count = batch * (steps + 1)
    images = draws.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    data = from_arrays("random", images, draws.integers(0, 10, count), classes=list("0123456789"))
    with tempfile.TemporaryDirectory() as folder:
        recipe = preset("cpu").replace(epochs=1, batch_size=batch)
        train(
            TrainingRun(
                data=data, model=model, loss=loss, recipe=recipe, out=Path(folder), save_seconds=1
            ),
            clock,
        )
    return clock.seconds()


def main() -> int:
    parser = parser_of(__doc__, rounds=5)
    parser.add_argument("--model", default="resnet26")
    parser.add_argument("--loss", default=CrossEntropy().spec)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    batch, steps = (8, 2) if options.quick else (options.batch_size, options.steps)
    case = (options.model, parse(options.loss), batch, steps)
    images = batch * steps
    rounds = []
    for _ in range(options.rounds):
        (bare, bare_cpu), (loop, loop_cpu) = time_bare(*case), time_training(*case)
        rounds.append((images / bare, images / loop, bare_cpu / max(loop_cpu, 1e-9)))
    bare_speed, loop_speed, share = (
        statistics.median(column) for column in zip(*rounds, strict=True)
    )
    shares = [row[2] for row in rounds]
    row = {
        "model": options.model,
        "batch": batch,
        "bare_images_a_second": bare_speed,
        "training_images_a_second": loop_speed,
        "share_of_bare_speed": (share, min(shares), max(shares)),
    }
    publish("train", PROTOCOL, [row], options)
    print(f"\nat least {LEAST_SHARE:.0%} of the bare speed is wanted")
    return 0 if share >= LEAST_SHARE or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
