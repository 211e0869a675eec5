"""Images from a folder, adapted and predicted, beside the adaptation steps alone.

    python benchmarks/predict.py [--images 2000] [--rounds 1] [--quick] [--json FILE]

A folder of JPEG files of 500 pixels goes through a ResNet-50 at 224 pixels: decoding, the steps, the
comparison with the source, and the rows on the disk. The steps alone run on as many batches of the same
sizes that lie in memory. Every way runs once per round, and the clock on the wall counts: decoding runs
in threads beside the network. Memory is the peak growth in a fresh process
for a small network, where the images weigh most. Fails if the folder costs more than 1.1 times the steps.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

import fenchel
from common.measuring import Timing, in_fresh_process, memory_growth
from common.reporting import parser_of, publish
from fenchel.models import build
from fenchel.predict import Choices, ImageFiles, Labelled, Run, read_images

PROTOCOL = (
    "Seconds on the wall for all images (medians); ratios are medians within interleaved rounds, with their "
    "range; peak growth of the resident set in a fresh process."
)
MOST = 1.1
ALONE = "steps alone"
BATCH, SIDE, PIXELS = 64, 224, 500


def write_photographs(folder: Path, count: int, pixels: int) -> None:
    """JPEG files with the smooth surfaces and fine grain of photographs."""
    random = np.random.default_rng(0)
    for number in range(count):
        coarse = random.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((pixels, pixels), Image.Resampling.BICUBIC)
        grain = random.normal(0, 8, (pixels, pixels, 3))
        grained = np.clip(np.asarray(picture) + grain, 0, 255).astype(np.uint8)
        Image.fromarray(grained).save(folder / f"{number:05d}.jpg", quality=90)


def from_the_folder(
    adapter: fenchel.Adapter, images: ImageFiles, folder: Path, choices: Choices
) -> None:
    Run(adapter, Labelled(images, None), folder / "rows.csv", choices=choices).go()


def steps_alone(adapter: fenchel.Adapter, images: ImageFiles, batch: int, side: int) -> None:
    x = torch.rand(batch, 3, side, side)
    left = len(images)
    while left:
        size = batch if left >= 2 * batch else left if left <= batch else -(-left // 2)
        adapter(x[:size])
        left -= size


def seconds_of(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def measured(
    folder: Path, model: nn.Module, side: int, batch: int, rounds: int
) -> list[dict[str, Any]]:
    images = read_images(folder / "photographs", size=side)
    adapter = fenchel.adapt(model, trained_with="cross-entropy", protect=False)
    choices = Choices(batch_size=batch)
    ways: dict[str, Callable[[], object]] = {
        ALONE: partial(steps_alone, adapter, images, batch, side),
        "from the folder": partial(from_the_folder, adapter, images, folder, choices),
    }
    adapter(torch.rand(16, 3, side, side))  # whatever a first batch takes
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            seconds[name].append(seconds_of(run))
    timings = {name: Timing(tuple(each)) for name, each in seconds.items()}
    return [
        {
            "way": name,
            "images": len(images),
            "seconds": timing.median,
            "of_steps_alone": timing.over(timings[ALONE]),
        }
        for name, timing in timings.items()
    ]


def growth(folder: str, count: int) -> int:
    """The memory that a run over so many images takes, with a network of no weight."""
    model = nn.Sequential(nn.Conv2d(3, 4, 8, stride=8), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1))
    model.extend([nn.Flatten(), nn.Linear(4, 10)])
    adapter = fenchel.adapt(model.eval(), trained_with="cross-entropy", protect=False)
    every = read_images(Path(folder) / "photographs", size=SIDE)
    images = ImageFiles(every.names[:count], every.read)
    run = partial(from_the_folder, adapter, images, Path(folder), Choices(batch_size=BATCH))
    return memory_growth(run).peak


def main() -> int:
    parser = parser_of(__doc__, rounds=1)
    parser.add_argument("--images", type=int, default=2000)
    options = parser.parse_args()
    count, side, batch, pixels = (
        (40, 32, 16, 64) if options.quick else (options.images, SIDE, BATCH, PIXELS)
    )
    torch.manual_seed(0)
    model = build("resnet26", classes=10) if options.quick else build("resnet50", classes=1000)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "photographs").mkdir()
        write_photographs(folder / "photographs", count, pixels)
        results = measured(folder, model.eval(), side, batch, options.rounds)
        for some in (count // 4, count):
            grown = in_fresh_process(growth, str(folder), some)
            results.append({"memory_of_images": some, "peak_bytes": grown})
    publish("predict", PROTOCOL, results, options)
    ratio = results[1]["of_steps_alone"][0]
    slow = ratio > MOST and not options.quick
    if slow:
        print(f"the folder costs {ratio:.2f} times the steps alone; at most {MOST} is allowed")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
