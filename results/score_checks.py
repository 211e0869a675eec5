"""Scores without labels beside the true error: which of them could choose a learning rate?

    python results/score_checks.py     # results/score-checks.csv

On the validation corruptions, with what can be known of each run without a label: the settings of the tunings
in this folder again, for the conjugate; and the default at multiples of its rate, among which
`learning_rate="auto"` chooses. `results/calibrating.py` makes tables of it. The same command again continues.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from reading import rows_of
from torch import Tensor

import fenchel
from fenchel.adapters.monitor import Predicted
from fenchel.adapters.watch import distance
from fenchel.data.corruptions import VALIDATION_CORRUPTIONS
from fenchel.data.stream import Shift, Stream, corruption_shifts
from fenchel.files import write_atomically
from fenchel.methods.side_by_side import SideBySide
from fenchel.models import Checkpoint, load_checkpoint, zoo
from fenchel.performance import retain_freed_memory
from fenchel.progress import progress
from fenchel.report.layout import to_csv

HERE = Path(__file__).parent
FILE = HERE / "score-checks.csv"
SOURCES = ("ce", "poly", "squared")
BATCH, IMAGES, SEED = 100, 500, 0
SCORES = (
    "objective", "entropy", "marginal_entropy", "mutual_information", "agreement_with_source",
    "agreement_with_the_rate_below", "consistency_when_mirrored", "neighbourhood_density",
    "parameter_distance",
)  # fmt: skip
HEADINGS = (
    "source", "method", "corruption", "learning_rate", "temperature", "images", "error", *SCORES
)  # fmt: skip
CONJUGATE, DEFAULT = "conjugate", "default"
MULTIPLES = (1 / 16, 1 / 4, 1.0, 4.0)
"""Of the default's rate: those that run side by side, and a lower one."""

Setting = tuple[float, float]
"""A rate, for the default a multiple of its own, and a temperature."""


def tried(source: str) -> list[Setting]:
    """The rates and temperatures of the tuning of a source, for the conjugate."""
    rows = [row for row in rows_of(f"cells-tuning-{source}") if row["method"] == "conjugate"]
    return sorted({(float(row["learning_rate"]), float(row["temperature"])) for row in rows})


def conjugate_at(checkpoint: Checkpoint, setting: Setting) -> fenchel.Adapter:
    """The bare step, as it is tuned."""
    rate, temperature = setting
    return fenchel.adapt(
        checkpoint.model,
        trained_with=checkpoint.loss_spec,
        method="conjugate",
        optimizer="sgd",
        learning_rate=rate,
        temperature=temperature,
        predict="before",  # so that nothing is judged on images that it was adapted to
        protect=False,
    )


def default_at(checkpoint: Checkpoint, setting: Setting) -> fenchel.Adapter:
    """The default with steps of other lengths, as one of the rates that run side by side."""
    loss = checkpoint.loss_spec
    settings = fenchel.adapt(checkpoint.model, trained_with=loss, learning_rate="auto").settings
    assert isinstance(settings.method, SideBySide)
    method = replace(settings.method, factors=(setting[0], setting[0]))
    return fenchel.Adapter(checkpoint.model, replace(settings, method=method, predict="before"))


class Run:
    """One setting on one stream, and the sums of what it shows."""

    def __init__(self, checkpoint: Checkpoint, adapter: fenchel.Adapter) -> None:
        self.adapter = adapter
        self.objective = fenchel.losses.parse(checkpoint.loss_spec).conjugate
        self.wrong = 0
        self.sums: Predicted | None = None
        self.values: dict[str, list[float]] = {}

    def __call__(self, images: Tensor, labels: Tensor, source: Tensor, below: Tensor) -> Tensor:
        """The predicted classes of a batch, beside the source's and those at the next lower rate."""
        mirrored = self._mirrored(images)
        logits: Tensor = self.adapter(images)
        p = logits.softmax(-1)
        one = Predicted.of(p)
        self.sums = one if self.sums is None else self.sums + one
        predicted = p.argmax(-1)
        self.wrong += int((predicted != labels).sum())
        for name, value in (
            ("objective", self.objective(logits).mean()),
            ("agreement_with_source", (predicted == source).double().mean()),
            ("agreement_with_the_rate_below", (predicted == below).double().mean()),
            ("consistency_when_mirrored", (predicted == mirrored).double().mean()),
            ("neighbourhood_density", neighbourhood_density(p)),
        ):
            self.values.setdefault(name, []).append(float(value))
        return predicted

    def _mirrored(self, images: Tensor) -> Tensor:
        """What is predicted of mirrored images, before the batch is adapted to."""
        self.adapter.freeze()
        try:
            logits: Tensor = self.adapter(images.flip(-1))
            return logits.argmax(-1)
        finally:
            self.adapter.resume()

    def scores(self) -> list[float]:
        """In the order of `SCORES`."""
        assert self.sums is not None
        found = {name: fmean(values) for name, values in self.values.items()}
        for name in ("entropy", "marginal_entropy", "mutual_information"):
            found[name] = getattr(self.sums, name)
        step = self.adapter.step
        found["parameter_distance"] = distance(self.adapter.state.parameters, step.source)
        return [found[name] for name in SCORES]


def neighbourhood_density(p: Tensor, temperature: float = 0.05) -> Tensor:
    """SND: the mean entropy of each prediction's similarities to the others; Saito et al., ICCV 2021."""
    near = torch.nn.functional.normalize(p, dim=-1)
    apart = torch.eye(len(p), dtype=torch.bool)
    similar = (near @ near.T / temperature).masked_fill(apart, -torch.inf).softmax(-1)
    density: Tensor = torch.special.entr(similar).sum(-1).mean()
    return density


def runs_of(source: str, method: str) -> dict[Setting, Run]:
    """Fresh runs of a source by their settings, rates in ascending order."""
    checkpoint = load_checkpoint(zoo.path_of(f"cifar10-resnet26-{source}"))
    if method == CONJUGATE:
        return {
            setting: Run(checkpoint, conjugate_at(checkpoint, setting)) for setting in tried(source)
        }
    multiples = [(multiple, 1.0) for multiple in MULTIPLES]
    return {setting: Run(checkpoint, default_at(checkpoint, setting)) for setting in multiples}


def check(source: str, method: str, shift: Shift) -> Iterator[tuple[Any, ...]]:
    """All settings of a source side by side on one stream."""
    runs = runs_of(source, method)
    network = load_checkpoint(zoo.path_of(f"cifar10-resnet26-{source}")).model
    for batch in Stream(shifts=[shift], batch_size=BATCH, limit=IMAGES, seed=SEED):
        labels = batch.reveal_labels()
        with torch.no_grad():
            own = network(batch.inputs).argmax(-1)
        at_the_rate_below: dict[float, Tensor] = {}  # by temperature
        for (_, temperature), run in runs.items():
            below = at_the_rate_below.get(temperature, own)
            at_the_rate_below[temperature] = run(batch.inputs, labels, own, below)
    for setting, run in runs.items():
        values = [f"{value:.5g}" for value in run.scores()]
        yield source, method, shift.name, *setting, IMAGES, 100 * run.wrong / IMAGES, *values


def known() -> list[tuple[Any, ...]]:
    """The rows of the file; none before it is there."""
    if not FILE.is_file():
        return []
    with FILE.open(encoding="utf-8", newline="") as file:
        return [tuple(row) for row in csv.reader(file)][1:]


def main() -> None:
    torch.set_num_threads(1)
    retain_freed_memory()
    shifts = corruption_shifts("cifar10-c", corruptions=VALIDATION_CORRUPTIONS)
    rows = known()
    places = [(s, m, shift) for m in (CONJUGATE, DEFAULT) for s in SOURCES for shift in shifts]
    with progress("checking", total=len(places)) as bar:
        for source, method, shift in places:
            if (source, method, shift.name) not in {row[:3] for row in rows}:
                rows += check(source, method, shift)
                write_atomically(FILE, to_csv(HEADINGS, rows).encode())
            bar.advance()


if __name__ == "__main__":
    main()
