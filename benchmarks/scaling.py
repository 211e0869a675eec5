"""How time and memory of a step grow with batch, classes and the length of the stream.

    python benchmarks/scaling.py [--rounds 5] [--quick] [--json FILE]

Full steps of the thin ResNet-26 on 32-px images over batch sizes and numbers of classes: CPU time an image,
interleaved over the sizes, and the growth of the peak resident set in a process of its own. For
the stream, one adapter takes 10,000 small batches; the resident set is sampled on the way.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

import fenchel
from common.measuring import in_fresh_process, interleaved, memory_growth, resident_bytes
from common.reporting import parser_of, publish
from fenchel.models import build

PROTOCOL = (
    "Full steps; CPU milliseconds an image (medians of interleaved rounds), peak growth of the resident set "
    "over two steps in a fresh process; for the stream, growth of the resident set since its tenth batch."
)
BATCHES: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
CLASSES: tuple[int, ...] = (10, 100, 1000, 21_841)
LENGTHS: tuple[int, ...] = (10, 100, 1000, 10_000)


def step_of(batch: int, classes: int) -> partial[Any]:
    torch.manual_seed(0)
    model = build("resnet26", classes=classes).eval()
    adapted = fenchel.adapt(model, trained_with=fenchel.PolyLoss(epsilon=6.0), protect=False)
    return partial(adapted, torch.rand(batch, 3, 32, 32))


def peak_of(batch: int, classes: int) -> int:
    run = step_of(batch, classes)
    return memory_growth(run, times=2).peak


def sizes(vary: str, pairs: list[tuple[int, int]], rounds: int) -> list[dict[str, Any]]:
    """One row for every (batch, classes)."""
    timings = interleaved({str(pair): step_of(*pair) for pair in pairs}, rounds)
    return [
        {
            "vary": vary,
            "batch": batch,
            "classes": classes,
            "milliseconds_an_image": 1e3 * timings[str((batch, classes))].median / batch,
            "peak_bytes": in_fresh_process(peak_of, batch, classes),
        }
        for batch, classes in pairs
    ]


def stream(lengths: tuple[int, ...]) -> list[int]:
    """The resident set after each of these numbers of batches."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = build("digit_network").eval()
    shape = (16, model.preprocessing.mean.numel(), 8, 8)  # type: ignore[union-attr, operator]
    adapted = fenchel.adapt(model, trained_with=fenchel.PolyLoss(epsilon=6.0), protect=False)
    found = []
    for count in range(1, max(lengths) + 1):
        adapted(torch.rand(shape))
        if count in lengths:
            found.append(resident_bytes())
    return found


def main() -> None:
    options = parser_of(__doc__, rounds=5).parse_args()
    sizes_of_batch, counts, lengths, batch = BATCHES, CLASSES, LENGTHS, 64
    if options.quick:
        sizes_of_batch, counts, lengths, batch = (16,), (10,), (10, 20), 16
    results = sizes("batch", [(size, 10) for size in sizes_of_batch], options.rounds)
    results += sizes("classes", [(batch, count) for count in counts], options.rounds)
    resident = in_fresh_process(stream, lengths)
    results += [
        {"vary": "stream", "batches": length, "growth_bytes": now - resident[0]}
        for length, now in zip(lengths, resident, strict=True)
    ]
    publish("scaling", PROTOCOL, results, options)


if __name__ == "__main__":
    main()
