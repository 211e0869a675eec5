"""What settings without labels of the target cost: the three levels of docs/settings.md, measured.

    python results/settings_checks.py [--source ce] [--seed 0]     # results/settings-checks-ce.csv, ...

Every source is calibrated on images of its training set, with their labels and without, and then adapts to
the fifteen test corruptions, or to digits of other kinds, on which nothing was chosen. Beside it: the source,
batch statistics alone, the settings tuned with labels (zoo/NAME.tuned.json) where there are some, and the
default with nothing but the model. The same command again continues.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import fenchel
from fenchel.bench.tuned import read_tuned
from fenchel.data import load
from fenchel.data.corruptions import TEST_CORRUPTIONS
from fenchel.data.stream import Shift, Stream, corruption_shifts, shift_to
from fenchel.files import write_atomically
from fenchel.models import Checkpoint, load_checkpoint, zoo
from fenchel.performance import retain_freed_memory
from fenchel.progress import progress
from fenchel.report.layout import to_csv

HERE = Path(__file__).parent
FOLDER = HERE / "calibrations"
BATCH, IMAGES, CALIBRATED_ON, TRIALS = 100, 1000, 500, 8
SEVERITY = 5
HEADINGS = ("source", "settings", "corruption", "seed", "images", "error")

Adapt = Callable[[], fenchel.Adapter]


@dataclass(frozen=True)
class Source:
    """A network of the zoo, what it was trained on, and what it adapts to."""

    network: str
    trained_on: str = "cifar10"
    targets: tuple[str, ...] = ()
    """Data sets that are shifts by themselves; none: the fifteen corruptions of CIFAR-10."""
    tuned: str | None = "tuned"
    has_batch_norm: bool = True

    def shifts(self) -> Sequence[Shift]:
        """One after the other, with a reset before each."""
        if self.targets:
            return [shift_to(load(target)) for target in self.targets]
        return corruption_shifts("cifar10-c", corruptions=TEST_CORRUPTIONS, severities=[SEVERITY])


SOURCES = {
    "ce": Source("cifar10-resnet26-ce"),
    "poly": Source("cifar10-resnet26-poly"),
    "squared": Source("cifar10-resnet26-squared"),
    "groupnorm": Source("cifar10-resnet26-groupnorm-ce", tuned=None, has_batch_norm=False),
    "svhn": Source(
        "svhn-resnet26-ce",
        trained_on="svhn:digits=True",
        targets=("mnist:digits=True", "usps:digits=True", "mnist-m:digits=True"),
        tuned="t1",
    ),
}


def calibration(name: str, checkpoint: Checkpoint, level: str) -> fenchel.Calibration:
    """That of a source, found once; images and labels are those of its training set."""
    path = FOLDER / f"{name}-{level}.safetensors"
    if not path.is_file():
        data = load(SOURCES[name].trained_on, split="train")
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
        chosen = order[:CALIBRATED_ON].numpy()
        images = torch.from_numpy(data.images(chosen)).permute(0, 3, 1, 2).float() / 255
        labels = torch.from_numpy(data.labels[chosen]) if level == "labels" else None
        found = fenchel.calibrate(
            checkpoint.model, checkpoint.loss_spec, images, labels, batch_size=BATCH, trials=TRIALS
        )
        found.save(path)
    return fenchel.Calibration.load(path)


def ways(name: str) -> dict[str, Adapt]:
    """How a source is adapted, by what the settings were chosen with."""
    source = SOURCES[name]
    checkpoint = load_checkpoint(zoo.path_of(source.network))

    def with_settings(**arguments: Any) -> Adapt:
        loss = checkpoint.loss_spec
        return lambda: fenchel.adapt(checkpoint.model, trained_with=loss, **arguments)

    found = {"the source": with_settings(method="source")}
    if source.has_batch_norm:
        found["batch statistics alone"] = with_settings(method="bn")
    if source.tuned is not None:
        tuned = read_tuned(zoo.folder() / f"{source.network}.{source.tuned}.json")
        (choice,) = (choice for choice in tuned.choices if choice.method == "conjugate")
        settings = with_settings(method="conjugate", **choice.settings)
        found["tuned on validation corruptions"] = settings
    found |= {
        "level 1: labelled source images": with_settings(
            settings=calibration(name, checkpoint, "labels")
        ),
        "level 2: source images": with_settings(settings=calibration(name, checkpoint, "images")),
        "level 3: the model alone": with_settings(),
    }
    if source.has_batch_norm:
        found["level 3, statistics of the batch"] = with_settings(statistics="batch")
    return found | {"level 3, three rates side by side": with_settings(learning_rate="auto")}


def main() -> None:
    torch.set_num_threads(1)
    retain_freed_memory()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", choices=tuple(SOURCES), action="append")
    parser.add_argument("--seed", type=int, action="append")
    options = parser.parse_args()
    for source in options.source or SOURCES:
        found, shifts = ways(source), SOURCES[source].shifts()
        for seed in options.seed or (0, 1, 2):
            run(source, found, shifts, seed)


def run(source: str, found: dict[str, Adapt], shifts: Sequence[Shift], seed: int) -> None:
    """Whatever of a source and a seed has no row yet, one row at a time."""
    with progress(f"{source}, seed {seed}", total=len(found) * len(shifts)) as bar:
        for name, adapt in found.items():
            for shift in shifts:
                place = (source, name, shift.name, str(seed))
                if place not in {tuple(row[:4]) for row in rows(source)}:
                    adapted, wrong = adapt(), 0
                    for batch in Stream(shifts=[shift], batch_size=BATCH, limit=IMAGES, seed=seed):
                        predicted = adapted(batch.inputs).argmax(-1)
                        wrong += int((predicted != batch.reveal_labels()).sum())
                    added = [*rows(source), (*place, IMAGES, 100 * wrong / IMAGES)]
                    write_atomically(file_of(source), to_csv(HEADINGS, added).encode())
                bar.advance()


def file_of(source: str) -> Path:
    """What has been measured of a source."""
    return HERE / f"settings-checks-{source}.csv"


def rows(source: str) -> list[tuple[str, ...]]:
    """The rows of that file; none before it is there."""
    if not file_of(source).is_file():
        return []
    with file_of(source).open(encoding="utf-8", newline="") as file:
        return [tuple(row) for row in csv.reader(file)][1:]


if __name__ == "__main__":
    main()
