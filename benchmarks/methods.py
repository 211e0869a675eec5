"""What a batch costs under every method, beside TENT's step and beside what the method's passes predict.

    python benchmarks/methods.py [--network wide|thin] [--batch-size 64] [--rounds 5]
                                 [--quick] [--json FILE]

Every method runs once per round, and ratios are taken within rounds (CPU time). All predict before the
update, as their papers do, so that a prediction costs no pass of its own. "Counted" is the ratio of passes
where a forward pass counts 1 and a backward pass 2. "Predicted" takes what the two cost in the same run:
a forward pass that needs the statistics of its batch is that of `bn`, one that does not is the source's
prediction, a backward pass is what TENT's step costs beyond its forward pass, and likewise for a step that
moves all weights (CoTTA). CoTTA averages four views; RoTTA's bank is as large as the batch,
so that it takes a step on each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

import fenchel
from common.measuring import Timing, interleaved
from common.reporting import parser_of, publish
from fenchel.models import build

PROTOCOL = (
    "CPU seconds per batch, one thread (medians); ratios within interleaved rounds, with their range; "
    "predictions before the update."
)
NETWORKS = {"wide": "resnet26_wide", "thin": "resnet26"}
CLASSES, VIEWS = 10, 4
PLAIN, FORWARD, TENT, ALL_WEIGHTS = "source", "bn", "entropy", "entropy, all weights"
OPEN = {"margin": 1.0}
"""Gates are open: an untrained network is sure of nothing."""


@dataclass(frozen=True)
class Passes:
    """The passes that the formula of a method needs per batch, and options under which it makes them.

    So many of the forward passes are `plain`: they do not need the statistics of the batch.
    """

    forward: float
    backward: float = 0
    options: dict[str, Any] = field(default_factory=dict)
    method: str | None = None
    all_weights: bool = False
    plain: float = 0


def methods(batch: int) -> dict[str, Passes]:
    """Every method that is measured, by name."""
    images = {"input_range": (0.0, 1.0)}
    return {
        PLAIN: Passes(1, plain=1),
        FORWARD: Passes(1),
        "bn-alpha": Passes(1),
        TENT: Passes(1, 1),
        ALL_WEIGHTS: Passes(1, 1, {"parameters": "all"}, TENT, all_weights=True),
        "conjugate": Passes(1, 1),
        "eta": Passes(1, 1, {**OPEN, "similarity": 1.0}),
        "eata": Passes(
            1, 1, {**OPEN, "similarity": 1.0, "source_images": torch.rand(8, 3, 32, 32)}
        ),
        "rdumb": Passes(1, 1, {**OPEN, "similarity": 1.0}),
        "sar": Passes(2, 2, {**OPEN, "parameters": "normalization"}),
        "deyo": Passes(2, 1, {**OPEN, "drop": -1.0, "parameters": "normalization"}),
        "roid": Passes(2, 2, images),
        "cotta": Passes(
            VIEWS + 2, 1, {**images, "views": VIEWS, "confidence": 1.0}, all_weights=True
        ),
        "rotta": Passes(3, 1, {**images, "bank": batch}, plain=1),
        "lame": Passes(1, plain=1),
        "t3a": Passes(1, plain=1),
    }


def ways(network: str, batch: int, side: int) -> dict[str, Callable[[], object]]:
    """Every method on the same images, its first batch behind it."""
    torch.manual_seed(0)
    model = build(NETWORKS[network], classes=CLASSES).eval()
    x = torch.rand(batch, 3, side, side)
    with torch.no_grad():  # RoTTA's bank has equal shares for the classes: all of them must occur
        model.get_submodule("fc").get_parameter("bias").sub_(model(x).mean(0))
    made: dict[str, Callable[[], object]] = {}
    for name, passes in methods(batch).items():
        adapted = fenchel.adapt(
            model,
            trained_with="cross-entropy",
            method=passes.method or name,
            predict="before",
            learning_rate=1e-5,
            **passes.options,
        )
        adapted(x)
        made[name] = partial(adapted, x)
    return made


def predicted(passes: Passes, timings: dict[str, Timing]) -> float:
    """The ratio to TENT's step that the passes give at their cost in this run."""
    plain, forward, tent = (timings[name].median for name in (PLAIN, FORWARD, TENT))
    backward = (timings[ALL_WEIGHTS].median if passes.all_weights else tent) - forward
    needed = passes.plain * plain + (passes.forward - passes.plain) * forward
    return (needed + passes.backward * backward) / tent


def main() -> None:
    parser = parser_of(__doc__, rounds=5)
    parser.add_argument("--network", choices=list(NETWORKS), default="wide")
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()
    torch.set_num_threads(1)
    batch, side = (16, 16) if options.quick else (options.batch_size, 32)
    network = "thin" if options.quick else options.network
    timings = interleaved(ways(network, batch, side), options.rounds)
    results = [
        {
            "network": NETWORKS[network],
            "batch": batch,
            "method": name,
            "forward": passes.forward,
            "backward": passes.backward,
            "cpu_seconds": timings[name].median,
            "of_tent": timings[name].over(timings[TENT]),
            "predicted": predicted(passes, timings),
            "counted": (passes.forward + 2 * passes.backward) / 3,
        }
        for name, passes in methods(batch).items()
    ]
    publish("methods", PROTOCOL, results, options)


if __name__ == "__main__":
    main()
