"""The main use on a small scale: train with PolyLoss, shift the test images, adapt with every method."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import nn

from fenchel.adapters import online
from fenchel.api import adapt
from fenchel.data import Dataset, from_arrays, load
from fenchel.data.stream import Shift, Stream, corruption_shifts, shift_to
from fenchel.losses import Loss, PolyLoss
from fenchel.methods import STANDARD_METHODS
from fenchel.models import load_checkpoint
from fenchel.progress import progress
from fenchel.train import TrainingRun, preset, train
from fenchel.train.reporting import Reporter

LOSS = PolyLoss(epsilon=6.0)
SHIFTS = (
    ("contrast", 5),
    ("impulse_noise", 5),
    ("fog", 4),
    ("brightness", 5),
    ("motion_blur", 5),
)
SIDE = 16
"""The digits have 8 x 8 pixels; they are enlarged, so that the shifts have an effect."""
BATCH_SIZE = 50
LEARNING_RATE = 1e-2
EPOCHS = 12
WIDTH = 16


@dataclass
class Outcome:
    """Everything the demo measured: online errors in percent, by (method, shift), one per seed."""

    seeds: tuple[int, ...]
    shifts: tuple[str, ...]
    errors: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    curves: dict[tuple[str, str], list[list[float]]] = field(default_factory=dict)
    """The error over the stream so far, after each batch."""
    clean_errors: list[float] = field(default_factory=list)
    samples: dict[str, npt.NDArray[np.uint8]] = field(default_factory=dict)
    """A few images of each shift, uint8 (N, H, W, C)."""
    seconds: float = 0.0

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, in their usual order."""
        return STANDARD_METHODS

    def protocol(self) -> str:
        """The protocol of the numbers, in one paragraph."""
        return (
            f"Source: a small convolutional network trained with {LOSS!r} on half of the 1,797 digits "
            f"of scikit-learn, enlarged to {SIDE} x {SIDE}, once for each of the seeds "
            f"{', '.join(map(str, self.seeds))}. Test: the other half, shifted. Online: one update per "
            f"batch of {BATCH_SIZE}, prediction after the update, reset at each shift, SGD with "
            f"momentum 0.9 and learning rate {LEARNING_RATE:g} for every method, temperature 1, "
            "nothing tuned. The five shifts were picked out of twelve that were tried, for how much they "
            "hurt the source."
        )


def run(out: Path | None = None, *, seeds: Sequence[int] = (0, 1, 2)) -> Outcome:
    """Train, shift and adapt; trained sources are kept in `out` and found again there."""
    if not seeds:
        raise ValueError("the demo needs at least one seed.")
    started = time.monotonic()
    # Networks this small run fastest on one thread, and to the same bits everywhere.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        outcome = _run(out, tuple(seeds))
    finally:
        torch.set_num_threads(threads)
    outcome.seconds = time.monotonic() - started
    return outcome


def _run(out: Path | None, seeds: tuple[int, ...]) -> Outcome:
    source, target = _halves(load("sklearn-digits", split="all"))
    shifts = [shift_to(target)]
    for name, severity in SHIFTS:
        shifts += corruption_shifts(target, corruptions=[name], severities=[severity])
    outcome = Outcome(seeds, tuple(name for name, _ in SHIFTS))
    for shift in shifts:
        outcome.samples[shift.name] = shift.dataset.images(_one_of_each(target))
    with progress("demo", total=len(seeds) * (1 + len(SHIFTS) * len(STANDARD_METHODS))) as bar:
        for seed in seeds:
            bar.note(f"training, seed {seed}")
            model = _trained(source, seed, out)
            bar.advance()
            clean = _online_errors(model, shifts[0], "source", seed)
            outcome.clean_errors.append(clean[-1])
            for shift in shifts[1:]:
                for method in STANDARD_METHODS:
                    bar.note(f"{method} on {shift.name}")
                    curve = _online_errors(model, shift, method, seed)
                    outcome.curves.setdefault((method, shift.name), []).append(curve)
                    outcome.errors.setdefault((method, shift.name), []).append(curve[-1])
                    bar.advance()
    return outcome


def _halves(digits: Dataset) -> tuple[Dataset, Dataset]:
    """Enlarged digits, every second one of each class for training and the others for testing."""
    small = digits.images(np.arange(len(digits)))[..., 0]
    size = (SIDE, SIDE)
    large = [Image.fromarray(image).resize(size, Image.Resampling.BILINEAR) for image in small]
    images = np.stack([np.asarray(image) for image in large])[..., None]
    by_class = np.argsort(digits.labels, kind="stable")
    halves = {"train": by_class[0::2], "test": by_class[1::2]}
    source, target = (
        from_arrays(
            "digits", images[rows], digits.labels[rows], classes=digits.classes, split=split
        )
        for split, rows in halves.items()
    )
    return source, target


def _one_of_each(digits: Dataset) -> list[int]:
    return [int(np.flatnonzero(digits.labels == label)[0]) for label in range(len(digits.classes))]


def _trained(source: Dataset, seed: int, out: Path | None) -> nn.Module:
    with tempfile.TemporaryDirectory() as scratch:
        folder = (out or Path(scratch)) / f"source-seed{seed}"
        settings = TrainingRun(
            data=source,
            model="digit_network",
            model_arguments={"width": WIDTH},
            loss=LOSS,
            recipe=preset("embedded").replace(epochs=EPOCHS),
            out=folder,
            seed=seed,
            threads=1,
        )
        return load_checkpoint(train(settings, Reporter()).path).model.eval()


def _online_errors(
    model: nn.Module, shift: Shift, method: str, seed: int, loss: Loss = LOSS
) -> list[float]:
    """The error over the stream so far after each batch, in percent."""
    stream = Stream(shifts=[shift], batch_size=BATCH_SIZE, seed=seed)
    adapted = adapt(model, trained_with=loss, method=method, learning_rate=LEARNING_RATE, seed=seed)
    wrong, seen, curve = 0, 0, []
    for batch, logits in online(adapted, stream):
        wrong += int((logits.argmax(-1) != batch.reveal_labels()).sum())
        seen += len(batch)
        curve.append(100 * wrong / seen)
    return curve
