"""Peak memory of a step and of the label, and what a process holds on to afterwards.

    python benchmarks/memory.py [--network wide|thin|imagenet] [--compile] [--rounds 1]
                                [--quick] [--json FILE]

Every number is the growth of the resident set over the call in a process that has done nothing else: two
steps (the output of the first lives during the second), or one forward and backward pass of the
objective. "Stayed" is what the process still holds once they are done. The largest of all rounds counts.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

import torch

from common.labels import LABEL_CLASSES, ROW_NAMES, label_pass
from common.measuring import Growth, in_fresh_process, memory_growth
from common.reporting import parser_of, publish
from common.steps import BEFORE, CASES, FULL, NAIVE, QUICK, Case, ways_of

PROTOCOL = "Growth of the resident set over two steps or one pass of the objective, each in a fresh process."
WAYS: tuple[str, ...] = (NAIVE, FULL, BEFORE, "last:1")


def growth_of_steps(case: Case, way: str, retain: bool, compiled: bool) -> Growth:
    run = ways_of(case, retain, compiled)[way]
    return memory_growth(run, times=2)


def growth_of_label(loss: str, way: str, classes: int, batch: int) -> Growth:
    torch.set_num_threads(1)
    label_pass(loss, way, 64, 2)()  # libraries load on first use, and the loss is judged
    return memory_growth(label_pass(loss, way, classes, batch))


def largest(rounds: int, function: Callable[..., Growth], *arguments: object) -> Growth:
    found = [in_fresh_process(function, *arguments) for _ in range(rounds)]
    return max(found, key=lambda growth: growth.peak)


def steps(
    network: str, case: Case, ways: tuple[str, ...], rounds: int, *, compiled: bool
) -> list[dict[str, Any]]:
    settings = [(way, False) for way in ways] + [(FULL, True)]
    if compiled:
        settings.append(("compile", False))
    rows, naive = [], 0
    for way, retain in settings:
        growth = largest(rounds, growth_of_steps, case, way, retain, compiled)
        naive = naive or growth.peak
        rows.append(
            {
                "network": network,
                "model": case.model,
                "batch": case.batch,
                "way": way,
                "freed_memory": "retained" if retain else "returned",
                "peak_bytes": growth.peak,
                "of_naive_step": growth.peak / naive,
                "stayed_bytes": growth.stayed,
            }
        )
    return rows


def labels(
    losses: tuple[str, ...], classes: tuple[int, ...], batch: int, rounds: int
) -> list[dict[str, Any]]:
    rows = []
    for count in classes:
        for loss in losses:
            closed = 0
            for way in ("closed", "derived", "dense"):
                if way == "dense" and (loss != "poly" or count > 1000):
                    continue  # 355 GiB of matrices
                growth = largest(rounds, growth_of_label, loss, way, count, batch)
                closed = closed or max(growth.peak, resource.getpagesize())
                rows.append(
                    {
                        "classes": count,
                        "batch": batch,
                        "loss": loss,
                        "way": way,
                        "peak_bytes": growth.peak,
                        "of_closed_form": growth.peak / closed,
                    }
                )
    return rows


def main() -> None:
    parser = parser_of(__doc__, rounds=1)
    parser.add_argument("--network", choices=CASES, action="append", help="default: all three")
    parser.add_argument("--compile", action="store_true", help="also torch.compile (minutes)")
    options = parser.parse_args()
    chosen = {name: CASES[name] for name in options.network or CASES}
    ways, losses, counts, batch = WAYS, ROW_NAMES, LABEL_CLASSES, 200
    if options.quick:
        chosen, ways, losses, counts, batch = QUICK, (NAIVE, FULL), ("poly",), (40,), 4
    results = []
    for network, case in chosen.items():
        results += steps(network, case, ways, options.rounds, compiled=options.compile)
    results += labels(losses, counts, batch, options.rounds)
    publish("memory", PROTOCOL, results, options)


if __name__ == "__main__":
    main()
