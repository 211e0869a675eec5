"""The checks behind two paragraphs on the learned objectives: momentum, more passes, other rates.

    python results/meta_checks.py     # reproduce/meta-checks, then results/meta-checks.csv

Each differs in one thing from `fenchel reproduce fig-meta --scale cpu`, seed 0. What lies in the folder is
not done again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fenchel.adapters import SGD
from fenchel.files import write_atomically
from fenchel.models import load_checkpoint
from fenchel.models.places import resolve
from fenchel.objectives import Objective
from fenchel.paper.learned import LENGTHS
from fenchel.performance import retain_freed_memory
from fenchel.report.layout import to_csv
from fenchel.train.meta import MetaRun, Scoring, Target, baselines, learn, score

HERE = Path(__file__).parent
WORK = Path("reproduce/meta-checks")
USUAL = LENGTHS["cpu"]
BATCH, IMAGES, SEED = 100, 1000, 0

BLURRED = ("gaussian_noise", "defocus_blur", "glass_blur")
FIVE = ("gaussian_noise", "glass_blur", "fog", "contrast", "jpeg_compression")
ZOO = {"cross-entropy": "zoo:cifar10-resnet26-ce", "squared": "zoo:cifar10-resnet26-squared"}


@dataclass(frozen=True)
class Check:
    """One objective under one optimiser; learned for as many passes, or one that needs no learning."""

    name: str
    source: str
    corruptions: tuple[str, ...]
    objective: str = "learned"
    rate: float = 0.1
    momentum: float = 0.0
    epochs: int = 4

    @property
    def optimizer(self) -> SGD:
        return SGD(learning_rate=self.rate, momentum=self.momentum, nesterov=self.momentum > 0)

    @property
    def folder(self) -> Path:
        return WORK / f"{self.source}-{self.objective}-{self.rate}-{self.momentum}-{self.epochs}"

    def error(self) -> float:
        """The mean over the corruptions, in percent."""
        source = load_checkpoint(resolve(ZOO[self.source]))
        target = Target(data="cifar10-c", score_corruptions=self.corruptions, limit=IMAGES)
        objective: Objective | None
        if self.objective == "learned":
            recipe = replace(
                USUAL.recipe(self.source, BATCH, SEED), optimizer=self.optimizer, epochs=self.epochs
            )
            run = MetaRun(
                source=source,
                shifts=target.learn_shifts(),
                recipe=recipe,
                out=self.folder,
                facts={"target": target.record()},
                device="cpu",
            )
            objective = learn(run)
        else:
            objective = baselines(source)[self.objective]
        scoring = Scoring(
            source=source,
            shifts=target.score_shifts(),
            optimizer=self.optimizer,
            batch_size=BATCH,
            seed=SEED,
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        errors = score(scoring, {self.objective: objective}, self.folder / "scores.json")
        found = errors[self.objective].values()
        return sum(found) / len(found)

    def row(self) -> tuple[object, ...]:
        learned, moving = self.objective == "learned", self.objective != "bn"
        return (
            self.name,
            self.source,
            self.source if learned else "",
            SEED,
            self.momentum if moving else "",
            self.rate if moving else "",
            self.epochs if learned else "",
            self.objective,
            round(self.error(), 6),
            " ".join(self.corruptions),
        )


CHECKS = (
    Check("momentum", "cross-entropy", BLURRED, rate=0.01, momentum=0.9, epochs=8),
    Check("momentum", "cross-entropy", BLURRED),
    Check("momentum", "cross-entropy", BLURRED, "bn"),
    Check("length", "squared", FIVE),
    Check("length", "squared", FIVE, epochs=12),
    Check("rate", "squared", FIVE, rate=1.0),
    Check("rate", "squared", FIVE, "bn"),
    *(Check("rate", "squared", FIVE, "conjugate", rate=rate) for rate in (0.03, 0.1, 0.3, 1.0)),
)
HEADINGS = (
    "check", "source", "task_loss", "seed", "momentum", "rate", "epochs", "objective", "error",
    "corruptions",
)  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    retain_freed_memory()
    rows = [check.row() for check in CHECKS]
    write_atomically(HERE / "meta-checks.csv", to_csv(HEADINGS, rows).encode())


if __name__ == "__main__":
    main()
