"""How many images a second each corruption makes, on one process and synthetic images.

python benchmarks/corruptions.py
python benchmarks/corruptions.py --constants imagenet --size 224 --images 8 --json
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import numpy.typing as npt

from fenchel.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt


def synthetic_images(count: int, size: int) -> npt.NDArray[np.uint8]:
    """Smooth colours with a little grain: neither flat, which some codes find easy, nor noise."""
    generator = np.random.default_rng(0)
    across = np.linspace(0, 1, size)
    colours = generator.uniform(0, 255, (2, count, 1, 1, 3))
    blend = (across[:, None] + across)[None, :, :, None] / 2
    smooth = colours[0] * (1 - blend) + colours[1] * blend
    grain = generator.normal(0, 8, (count, size, size, 3))
    return np.asarray(np.clip(smooth + grain, 0, 255), dtype=np.uint8)


def images_per_second(images: npt.NDArray[np.uint8], name: str, constants: str) -> list[float]:
    """The speed at each severity, after a first call that fills the caches (textures, zooms)."""
    speeds = []
    for severity in SEVERITIES:
        corrupt(images[:1], name, severity, constants=constants)
        started = time.perf_counter()
        corrupt(images, name, severity, constants=constants)
        speeds.append(len(images) / (time.perf_counter() - started))
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=500, help="how many to corrupt (500)")
    parser.add_argument("--size", type=int, default=32, help="height and width in pixels (32)")
    parser.add_argument("--constants", choices=("cifar", "imagenet"), default="cifar")
    parser.add_argument("--only", nargs="+", choices=list(CORRUPTIONS), metavar="NAME")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    arguments = parser.parse_args()
    images = synthetic_images(arguments.images, arguments.size)
    names = arguments.only or list(CORRUPTIONS)
    speeds = {}
    if not arguments.json:
        heading = "".join(f"{severity:>9}" for severity in SEVERITIES)
        print(f"images a second, {arguments.size} px, {arguments.constants} constants")
        print(f"{'severity':20}{heading}")
    for name in names:
        speeds[name] = images_per_second(images, name, arguments.constants)
        if not arguments.json:
            print(f"{name:20}" + "".join(f"{speed:9,.0f}" for speed in speeds[name]), flush=True)
    if arguments.json:
        settings = {key: getattr(arguments, key) for key in ("images", "size", "constants")}
        print(json.dumps({**settings, "images_per_second": speeds}, indent=2))
    else:
        seconds = sum(10_000 / speed[-1] for speed in speeds.values())
        print(f"10,000 images at severity 5 with all {len(names)}: {seconds:.0f} s on one core")


if __name__ == "__main__":
    main()
