"""Does the default recover? Streams that ruin others, then benign ones, beside a fresh start on these.

    python results/recovery_checks.py        # results/recovery-checks.csv; the same command again continues

Benign streams are clean test images and validation corruptions. The last way is a method and a rate that
collapse, under the same protection.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
from reading import Row, rows_of
from tables import markdown
from torch import Tensor

import fenchel
from fenchel.data import load
from fenchel.data.stream import Stream, corruption_shifts, shift_to
from fenchel.files import write_atomically
from fenchel.performance import retain_freed_memory
from fenchel.progress import progress
from fenchel.report.layout import TableEntry, to_csv

NAME = "recovery-checks"
FILE = Path(__file__).parent / f"{NAME}.csv"
NETWORKS = {"cross-entropy": "ce", "PolyLoss": "poly", "squared loss": "squared"}
IMAGES, BATCH = 1000, 100
SEEDS = {"before": 101, "after": 202}
HEADINGS = ("network", "way", "before", "after", "images", "error")
FRESH = "nothing"
BEFORE = (FRESH, "noise", "black images", "sorted by class")
AFTER = ("clean", "spatter", "gaussian blur")
WAYS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "conjugate, rate 1": {"method": "conjugate", "learning_rate": 1.0, "protect": "auto"},
}
Batch = tuple[Tensor, Tensor]


def stream(shift: str, part: str, order: str = "shuffled") -> Iterator[Batch]:
    """Batches of images under a shift, with their labels."""
    shifts = (
        [shift_to(load("cifar10"))]
        if shift == "clean"
        else corruption_shifts("cifar10-c", corruptions=[shift.replace(" ", "_")], severities=[5])
    )
    found = Stream(shifts=shifts, batch_size=BATCH, limit=IMAGES, seed=SEEDS[part], order=order)
    return ((batch.inputs, batch.reveal_labels()) for batch in found)


@cache
def ruin(kind: str) -> list[Tensor]:
    """The batches of a stream that others do not survive."""
    generator = torch.Generator().manual_seed(SEEDS["before"])
    sizes = [BATCH] * (IMAGES // BATCH)
    if kind == "noise":
        return [torch.rand(size, 3, 32, 32, generator=generator) for size in sizes]
    if kind == "black images":
        return [torch.zeros(size, 3, 32, 32) for size in sizes]
    return [images for images, _ in stream("speckle noise", "before", "sorted")]


def error(network: str, way: str, before: str, after: str) -> float:
    """In percent on the benign stream."""
    adapted, wrong = fenchel.adapt(f"zoo:cifar10-resnet26-{network}", **WAYS[way]), 0
    for images in [] if before == FRESH else ruin(before):
        adapted(images)
    for images, labels in stream(after, "after"):
        wrong += int((adapted(images).argmax(-1) != labels).sum())
    return 100 * wrong / IMAGES


def main() -> None:
    torch.set_num_threads(1)
    retain_freed_memory()
    warnings.simplefilter("ignore", fenchel.AdaptationWarning)
    places = list(product(NETWORKS, WAYS, BEFORE, AFTER))
    with progress("recovery", total=len(places)) as bar:
        for network, way, before, after in places:
            place, rows = (network, way, before, after), rows_of(NAME)
            if not any(_place(row) == place for row in rows):
                new = (*place, IMAGES, error(NETWORKS[network], way, before, after))
                kept = [*(tuple(row.values()) for row in rows), new]
                write_atomically(FILE, to_csv(HEADINGS, kept).encode())
            bar.advance()


def _place(row: Row) -> tuple[str, str, str, str]:
    return row["network"], row["way"], row["before"], row["after"]


def _errors() -> dict[tuple[str, str, str, str], float]:
    return {_place(row): float(row["error"]) for row in rows_of(NAME)}


def _above_fresh() -> list[float]:
    """By how many points every benign stream that came after another ends above a fresh start."""
    found = _errors()
    return [
        error - found[network, way, FRESH, after]
        for (network, way, before, after), error in found.items()
        if before != FRESH
    ]


def mean() -> str:
    """The mean over them, in points."""
    above = _above_fresh()
    return f"{sum(above) / len(above):+.1f}"


def worst() -> str:
    """The most of them, in points."""
    return f"{max(_above_fresh()):.1f}"


def within_a_point() -> str:
    """How many end at most a point above a fresh start, of how many."""
    above = _above_fresh()
    return f"{sum(each <= 1 + 1e-9 for each in above)} of {len(above)}"


def table() -> str:
    """The errors of benign streams, by what came before them."""
    found, lines = _errors(), []
    for network, way, after in product(NETWORKS, WAYS, AFTER):
        errors = [
            found[place] for before in BEFORE if (place := (network, way, before, after)) in found
        ]
        if len(errors) == len(BEFORE):
            shown = [TableEntry(f"{error:.1f}", value=error) for error in errors]
            lines.append((TableEntry(network), TableEntry(way), TableEntry(after), *shown))
    return markdown(
        ["network", "way", "stream", "fresh", *(f"after {b}" for b in BEFORE[1:])], lines
    )


if __name__ == "__main__":
    main()
