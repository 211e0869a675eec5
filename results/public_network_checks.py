"""The protected default on a network that others trained: MobileNetV2 on shifted ImageNet images.

    python results/public_network_checks.py        # results/public-network-checks.csv; again continues

Corruptions are the validation ones. Beside the default: the source, and batch statistics alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from reading import Row, rows_of
from tables import markdown

import fenchel
from fenchel.data import load
from fenchel.data.stream import Shift, Stream, corruption_shifts, shift_to
from fenchel.files import write_atomically
from fenchel.performance import retain_freed_memory
from fenchel.progress import progress
from fenchel.report.layout import TableEntry, to_csv

NAME = "public-network-checks"
FILE = Path(__file__).parent / f"{NAME}.csv"
NETWORK = "pretrained:mobilenet-v2"
IMAGES, BATCH, SEED = 600, 50, 0
HEADINGS = ("stream", "way", "images", "batch_size", "seed", "error", "verdict")
WAYS: dict[str, dict[str, Any]] = {
    "source": {"method": "source"},
    "bn": {"method": "bn"},
    "default": {},
}


@dataclass(frozen=True)
class Case:
    """A stream of validation images, under a corruption or as they are."""

    corruption: str | None
    severity: int = 5
    order: str = "shuffled"

    @property
    def title(self) -> str:
        """As the table calls it."""
        shift = f"{self.corruption} {self.severity}" if self.corruption else "clean"
        ending = ", sorted" if self.order == "sorted" else ""
        return shift.replace("_", " ") + ending

    def stream(self) -> Stream:
        """Its batches."""
        shifts: Sequence[Shift] = [shift_to(load("imagenet"))]
        if self.corruption:
            data, severity = "imagenet-c:on-the-fly", [self.severity]
            shifts = corruption_shifts(data, corruptions=[self.corruption], severities=severity)
        return Stream(shifts=shifts, batch_size=BATCH, limit=IMAGES, seed=SEED, order=self.order)


CASES = (
    Case(None),
    Case(None, order="sorted"),
    Case("speckle_noise"),
    Case("speckle_noise", order="sorted"),
    Case("spatter"),
    Case("saturate"),
    Case("gaussian_blur", 3),
    Case("gaussian_blur"),
    Case("gaussian_blur", order="sorted"),
)


def main() -> None:
    torch.set_num_threads(1)
    retain_freed_memory()
    warnings.simplefilter("ignore", fenchel.AdaptationWarning)
    with progress(NETWORK, total=len(CASES) * len(WAYS)) as bar:
        for case in CASES:
            for way in WAYS:
                if not any(
                    (row["stream"], row["way"]) == (case.title, way) for row in rows_of(NAME)
                ):
                    run(case, way)
                bar.advance()


def run(case: Case, way: str) -> None:
    """Add one row."""
    adapted, wrong = fenchel.adapt(NETWORK, **WAYS[way]), 0
    for batch in case.stream():
        predicted = adapted(batch.inputs).argmax(-1)
        wrong += int((predicted != batch.reveal_labels()).sum())
    verdict = adapted.health().verdict if way == "default" else ""
    new = (case.title, way, IMAGES, BATCH, SEED, 100 * wrong / IMAGES, verdict)
    rows = [*(tuple(row.values()) for row in rows_of(NAME)), new]
    write_atomically(FILE, to_csv(HEADINGS, rows).encode())


def table() -> str:
    """The errors, a stream per line."""
    rows = rows_of(NAME)
    streams = dict.fromkeys(row["stream"] for row in rows)
    entries = [tuple(_line(s, [row for row in rows if row["stream"] == s])) for s in streams]
    return markdown(["stream", "source", "bn", "protected default", "verdict"], entries)


def _line(stream: str, rows: list[Row]) -> list[TableEntry]:
    by_way = {row["way"]: row for row in rows}
    errors = [float(by_way[way]["error"]) for way in WAYS if way in by_way]
    verdict = by_way.get("default", {}).get("verdict", "-")
    shown = [TableEntry(f"{error:.1f}", value=error) for error in errors]
    return [TableEntry(stream), *shown, TableEntry(verdict)]


if __name__ == "__main__":
    main()
