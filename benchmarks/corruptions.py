"""How many images per second each corruption makes, on one process and synthetic images.

python benchmarks/corruptions.py [--rounds 3] [--quick] [--json FILE]
python benchmarks/corruptions.py --constants imagenet --size 224 --images 8
python benchmarks/corruptions.py --beside --rounds 1

`--beside` times ImageNet's fifteen corruptions at 224 pixels beside the authors' functions, as the package
`imagecorruptions-imaug` has them. It compiles the loop of their glass blur; here it runs as they wrote it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
from PIL import Image

from common.measuring import interleaved
from common.reporting import Row, parser_of, publish
from fenchel.data.corruptions import CORRUPTIONS, SEVERITIES, TEST_CORRUPTIONS, corrupt

LARGE = 224


def synthetic_images(count: int, size: int) -> npt.NDArray[np.uint8]:
    """Smooth colours with a little grain: neither flat, which some codes find easy, nor noise."""
    generator = np.random.default_rng(0)
    across = np.linspace(0, 1, size)
    colours = generator.uniform(0, 255, (2, count, 1, 1, 3))
    blend = (across[:, None] + across)[None, :, :, None] / 2
    smooth = colours[0] * (1 - blend) + colours[1] * blend
    grain = generator.normal(0, 8, (count, size, size, 3))
    return np.asarray(np.clip(smooth + grain, 0, 255), dtype=np.uint8)


def speeds(options: argparse.Namespace) -> Iterator[Row]:
    """Images per CPU second at every severity, a row per corruption."""
    count = 2 if options.quick else options.images
    images = synthetic_images(count, options.size)
    for name in options.only or list(CORRUPTIONS):
        ways = {
            str(severity): partial(corrupt, images, name, severity, constants=options.constants)
            for severity in SEVERITIES
        }
        timings = interleaved(ways, options.rounds)
        found = {f"severity {key}": count / timing.median for key, timing in timings.items()}
        yield {"corruption": name, **found}


def beside(options: argparse.Namespace) -> Iterator[Row]:
    """Our CPU seconds per image and the authors', means over severities; at the end those of all."""
    images = synthetic_images(1, LARGE)
    totals = [0.0, 0.0]
    for name in options.only or TEST_CORRUPTIONS:
        seconds = []
        for way in (
            partial(_ours, images, name),
            partial(_theirs, Image.fromarray(images[0]), name),
        ):
            runs = {str(severity): partial(way, severity) for severity in SEVERITIES}
            timings = interleaved(runs, options.rounds).values()
            seconds.append(sum(timing.median for timing in timings) / len(SEVERITIES))
        totals = [total + part for total, part in zip(totals, seconds, strict=True)]
        yield _compared(name, *seconds)
    yield _compared("all of them", *totals)


def _compared(name: str, ours: float, theirs: float) -> Row:
    return {
        "corruption": name,
        "ours": ours,
        "the authors'": theirs,
        "times as fast": theirs / ours,
    }


def _ours(images: npt.NDArray[np.uint8], name: str, severity: int) -> object:
    return corrupt(images, name, severity, constants="imagenet")


def _theirs(image: Image.Image, name: str, severity: int) -> object:
    from imagecorruptions import corruptions

    function: Callable[..., Any] = getattr(corruptions, name)
    if name != "glass_blur":
        return function(image, severity)
    loop = corruptions._shuffle_pixels_njit_glass_blur
    with mock.patch.object(corruptions, loop.__name__, loop.py_func):
        return function(image, severity, seed=0)


def main() -> None:
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--images", type=int, default=200, help="how many to corrupt (200)")
    parser.add_argument("--size", type=int, default=32, help="height and width in pixels (32)")
    parser.add_argument("--constants", choices=("cifar", "imagenet"), default="cifar")
    parser.add_argument("--only", nargs="+", choices=list(CORRUPTIONS), metavar="NAME")
    parser.add_argument("--beside", action="store_true", help="the authors' code beside ours")
    options = parser.parse_args()
    if options.beside:
        protocol = (
            f"CPU seconds per image of {LARGE} px, ImageNet's constants, means over the five severities "
            "(medians of interleaved rounds)."
        )
        publish("corruptions", protocol, list(beside(options)), options)
        return
    count = 2 if options.quick else options.images
    protocol = (
        f"Images a CPU second, {options.size} px, {options.constants} constants, {count} images a "
        "call (medians of interleaved rounds)."
    )
    publish("corruptions", protocol, list(speeds(options)), options)


if __name__ == "__main__":
    main()
