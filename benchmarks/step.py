"""One adaptation step beside the bare network, and beside the step as research code writes it.

    python benchmarks/step.py [--network wide|thin|imagenet] [--rounds 5] [--retain] [--compile]
                              [--against SRC] [--quick] [--json FILE]

Every variant runs once per round, and ratios are taken within rounds (CPU time). The naive step solves
for the label with dense C x C matrices inside autograd (PolyLoss; for the 1,000 classes of ImageNet it
takes the softmax entropy, which is cheaper), moves the normalisation layers with torch.optim, and
predicts with a second forward whose graph is kept. "Convolutions alone" is the floor of a full step: its
three passes through every convolution, and nothing else. For `update_every=5` the mean of five batches
counts. The protected step is the default of `fenchel.adapt`, here with the source's predictions on no
batch and on every batch (by itself it asks for them on every 16th and in doubt). `--retain` measures in a
second process as well, which keeps its freed memory; its rounds alternate with those of the first.
`--against SRC`, the `src` folder of another version, times that one's adapter too, in a process of its
own, and shows this version's time over the other's.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from itertools import product
from typing import Any

from common.measuring import Timing, interleaved_measures
from common.reporting import parser_of, publish
from common.steps import (
    BARE,
    BEFORE,
    CASES,
    FULL,
    NAIVE,
    PERIOD,
    QUICK,
    RARELY,
    Case,
    ways_of,
)
from common.worker import Worker

PROTOCOL = (
    "CPU seconds a batch (medians); ratios are medians of the ratios within interleaved rounds, "
    "with their range; every setting of the allocator in a process of its own."
)
SETTINGS = {"returned": False, "retained": True}
THIS, OTHER = "this version", "other version"
OURS = (FULL, BEFORE, "last:1")
RETAINED = (NAIVE, FULL, BEFORE, BARE)
"""The ways that are measured with retained memory, too."""


def timings_of(
    case: Case, rounds: int, *, retain: bool, compiled: bool, against: str | None
) -> dict[tuple[str, str], Timing]:
    """By setting of the allocator and way; "other" is the version compared with."""
    with ExitStack() as stack:
        measures = {}
        if against is not None:
            # Two processes in the same condition, both with retained memory: page faults differ by chance.
            workers = {
                version: stack.enter_context(Worker(ways_of, case, True, compiled, source=source))
                for version, source in ((THIS, None), (OTHER, against))
            }
            for way, version in product((*OURS, BARE), workers):
                measures[version, way] = partial(seconds_a_batch, workers[version], way)
        for setting, retained in SETTINGS.items():
            if retained and not retain:
                continue
            worker = stack.enter_context(Worker(ways_of, case, retained, compiled))
            for way in RETAINED if retained else worker.names:
                measures[setting, way] = partial(seconds_a_batch, worker, way)
        return interleaved_measures(measures, rounds)


def seconds_a_batch(worker: Worker, way: str) -> float:
    return worker.seconds(way) / (PERIOD if way == RARELY else 1)


def rows_of(
    network: str, case: Case, timings: dict[tuple[str, str], Timing]
) -> list[dict[str, Any]]:
    naive = timings["returned", NAIVE]
    return [
        {
            "network": network,
            "model": case.model,
            "classes": case.classes,
            "batch": case.batch,
            "way": way,
            "freed_memory": setting,
            "cpu_seconds": timing.median,
            "of_naive_step": timing.over(naive),
            "of_naive_step_with_same_memory": timing.over(timings[setting, NAIVE]),
            "of_bare_with_same_memory": timing.over(timings[setting, BARE]),
            "of_full_step": timing.over(timings[setting, FULL]),
        }
        for (setting, way), timing in timings.items()
        if setting in SETTINGS
    ]


def comparison_of(network: str, timings: dict[tuple[str, str], Timing]) -> list[dict[str, Any]]:
    return [
        {"network": network, "way": way, "of_other_version": timing.over(timings[OTHER, way])}
        for (version, way), timing in timings.items()
        if version == THIS
    ]


def main() -> None:
    parser = parser_of(__doc__, rounds=5)
    parser.add_argument("--network", choices=CASES, action="append", help="default: all three")
    parser.add_argument("--retain", action="store_true", help="also with freed memory kept")
    parser.add_argument("--compile", action="store_true", help="also torch.compile (minutes)")
    parser.add_argument("--against", metavar="SRC", help="the src folder of another version")
    options = parser.parse_args()
    chosen = QUICK if options.quick else {name: CASES[name] for name in options.network or CASES}
    results = []
    for network, case in chosen.items():
        timings = timings_of(
            case,
            options.rounds,
            retain=options.retain,
            compiled=options.compile,
            against=options.against,
        )
        results += rows_of(network, case, timings) + comparison_of(network, timings)
    publish("step", PROTOCOL, results, options)


if __name__ == "__main__":
    main()
