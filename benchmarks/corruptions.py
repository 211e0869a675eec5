"""How many images per second each corruption makes, on one process and synthetic images.

python benchmarks/corruptions.py [--rounds 3] [--quick] [--json FILE]
python benchmarks/corruptions.py --constants imagenet --size 224 --images 8
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from common.measuring import interleaved
from common.reporting import parser_of, publish
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


def main() -> None:
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--images", type=int, default=200, help="how many to corrupt (200)")
    parser.add_argument("--size", type=int, default=32, help="height and width in pixels (32)")
    parser.add_argument("--constants", choices=("cifar", "imagenet"), default="cifar")
    parser.add_argument("--only", nargs="+", choices=list(CORRUPTIONS), metavar="NAME")
    options = parser.parse_args()
    count = 2 if options.quick else options.images
    images = synthetic_images(count, options.size)
    results = []
    for name in options.only or list(CORRUPTIONS):
        ways = {
            str(severity): partial(corrupt, images, name, severity, constants=options.constants)
            for severity in SEVERITIES
        }
        timings = interleaved(ways, options.rounds)
        speeds = {f"severity {key}": count / timing.median for key, timing in timings.items()}
        results.append({"corruption": name, **speeds})
    protocol = (
        f"Images a CPU second, {options.size} px, {options.constants} constants, {count} images a "
        "call (medians of interleaved rounds)."
    )
    publish("corruptions", protocol, results, options)


if __name__ == "__main__":
    main()
