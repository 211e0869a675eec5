"""How scores grow while the conjugate, whose objective has no minimum, adapts the squared-loss source.

    python results/growth_checks.py     # results/growth-checks.csv

By rate and part of the stream, means over the validation corruptions: the error, the length of a score
vector, and how many of the predictions fall into the batch's most frequent class.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import torch

import fenchel
from fenchel.data.corruptions import VALIDATION_CORRUPTIONS
from fenchel.data.stream import Shift, Stream, corruption_shifts
from fenchel.files import write_atomically
from fenchel.models import load_checkpoint, zoo
from fenchel.progress import progress
from fenchel.report.layout import to_csv

HERE = Path(__file__).parent
BATCH, IMAGES, PART = 100, 5000, 10
RATES = (0.003, 0.01)
HEADINGS = ("learning_rate", "batches", "error", "length", "most_frequent_class")

Measured = tuple[float, float, float]


def adapted(rate: float, shift: Shift) -> list[Measured]:
    """Error in %, length of the scores and share of the most frequent class in %, of every batch."""
    checkpoint = load_checkpoint(zoo.path_of("cifar10-resnet26-squared"))
    adapter = fenchel.adapt(
        checkpoint, method="conjugate", optimizer="sgd", learning_rate=rate, protect=False
    )
    measured = []
    for batch in Stream(shifts=[shift], batch_size=BATCH, limit=IMAGES, seed=0):
        scores = adapter(batch.inputs)
        predicted = scores.argmax(-1)
        measured.append(
            (
                100 * float((predicted != batch.reveal_labels()).double().mean()),
                float(scores.double().norm(dim=-1).mean()),
                100 * float(predicted.bincount().max()) / len(predicted),
            )
        )
    return measured


def main() -> None:
    torch.set_num_threads(1)
    shifts = corruption_shifts("cifar10-c", corruptions=VALIDATION_CORRUPTIONS)
    rows: list[tuple[object, ...]] = []
    with progress("checking", total=len(RATES) * len(shifts)) as bar:
        for rate in RATES:
            streams = []
            for shift in shifts:
                streams.append(adapted(rate, shift))
                bar.advance()
            for start in range(0, IMAGES // BATCH, PART):
                part = [batch for stream in streams for batch in stream[start : start + PART]]
                means = (round(fmean(values), 4) for values in zip(*part, strict=True))
                rows.append((rate, f"{start + 1} to {start + PART}", *means))
            write_atomically(HERE / "growth-checks.csv", to_csv(HEADINGS, rows).encode())


if __name__ == "__main__":
    main()
