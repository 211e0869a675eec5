"""The experiment on learned objectives: which sources and task losses, at which sizes, and how it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path

from fenchel.adapters import SGD, Optimizer
from fenchel.bench.parallel import run_all
from fenchel.bench.running import one_thread
from fenchel.models import Checkpoint, load_checkpoint
from fenchel.objectives import LearnedObjective, Objective
from fenchel.paper.planning import PresetPlan
from fenchel.train.meta import (
    Fits,
    MetaRecipe,
    MetaRun,
    Scoring,
    Target,
    baselines,
    fit,
    learn,
    score,
    source_logits,
)
from fenchel.train.meta.fit import FILE_NAME as FIT_NAME
from fenchel.train.meta.learn import FILE_NAME as LEARNED_NAME
from fenchel.train.meta.score import Errors

META = "fig-meta"

TASK_LOSSES: Mapping[str, tuple[str, ...]] = {
    "cross-entropy": ("cross-entropy", "squared", "brier"),
    "squared": ("cross-entropy", "squared"),
}

"""The task losses, by source. The squared loss wants logits of 0 and 1, far from those of a cross-entropy
source. The Brier score is the squared loss on the probabilities of such a source."""

EXPECTED = {"cross-entropy": "entropy", "squared": "quadratic"}

"""The paper's finding, our hypothesis: the fit that explains what is learned, by source."""

BASELINES = ("bn", "entropy", "conjugate")

"""The baselines of a learned objective; they do not depend on a task loss."""


@dataclass(frozen=True, kw_only=True)
class Length:
    """How long an objective is learned at a scale, and how the model adapts meanwhile.

    Attributes:
        epochs, batches, every, learning_rate, schedule: as in `MetaRecipe`. Shifts are visited one by one, as
            they are when objectives are scored: the statistics of a batch of several shifts are others.
        optimizer: the optimiser of the adaptation, while learning and for all objectives that are scored.
            It has no momentum, as in the paper's algorithm. The gradient looks one step ahead, but
            momentum carries further: with it, an objective that is updated at every batch grows until
            adaptation overshoots.
        fit_logits: how many logits the fits are made on.
    """

    epochs: int
    batches: int
    every: int
    learning_rate: float = 1e-3
    schedule: str = "constant"
    optimizer: Optimizer
    fit_logits: int = 2000

    def recipe(self, task_loss: str, batch_size: int, seed: int) -> MetaRecipe:
        """The recipe of one objective."""
        return MetaRecipe(
            task_loss=task_loss,
            optimizer=self.optimizer,
            epochs=self.epochs,
            batches=self.batches,
            batch_size=batch_size,
            every=self.every,
            learning_rate=self.learning_rate,
            schedule=self.schedule,
            seed=seed,
        )

    def __str__(self) -> str:
        return (
            f"learned in {self.epochs} epochs of {self.batches} batches, an update every {self.every}; "
            f"adaptation by {self.optimizer}"
        )


def _plain_sgd(learning_rate: float) -> SGD:
    return SGD(learning_rate=learning_rate, momentum=0.0, nesterov=False)


LENGTHS: Mapping[str, Length] = {
    "full": Length(epochs=100, batches=50, every=5, optimizer=_plain_sgd(1e-3)),
    "cpu": Length(
        epochs=4,
        batches=40,
        every=1,
        learning_rate=3e-3,
        schedule="cosine",
        optimizer=_plain_sgd(1e-1),
    ),
    "smoke": Length(epochs=1, batches=4, every=2, optimizer=_plain_sgd(1e-2), fit_logits=100),
}

"""The lengths by scale; `full` is the paper's."""

SCORES_NAME, LOG_NAME = "scores.json", "log.txt"


@dataclass(frozen=True, kw_only=True)
class LearningTask:
    """One objective to learn for a source, or, without a task loss, the baselines of the source.

    Attributes:
        source: the training loss of the source, which identifies it.
        checkpoint: where the source is.
        data, limit, batch_size, length: see `Target`, `Scale` and `Length`.
        folder: the folder of this task alone.
    """

    source: str
    task_loss: str | None
    seed: int
    checkpoint: Path
    data: str
    limit: int | None
    batch_size: int
    length: Length
    folder: Path
    device: str = "cpu"

    def __str__(self) -> str:
        what = f"task {self.task_loss}" if self.task_loss else "baselines"
        return f"source {self.source}, {what}, seed {self.seed}"


@dataclass(frozen=True)
class LearningResult:
    """Errors by objective and corruption; of a task that learned, also the fits."""

    errors: Errors
    fits: Fits | None = None


@dataclass(frozen=True)
class Learned:
    """A learned objective with its fits and its errors, those of the fits beside them."""

    source: str
    task_loss: str
    seed: int
    objective: LearnedObjective
    fits: Fits
    errors: Errors


@dataclass(frozen=True)
class MetaOutcome:
    """All results, for the sources that were present.

    Attributes:
        learned: by source, task loss and seed, in this order.
        baselines: errors by objective and corruption, by source and seed.
    """

    learned: tuple[Learned, ...]
    baselines: dict[tuple[str, int], Errors]

    def errors_of(self, entry: Learned) -> Errors:
        """Every objective that was scored for the source and seed of `entry`."""
        return {**self.baselines[entry.source, entry.seed], **entry.errors}


def tasks_of(planned: PresetPlan, where: Path, device: str = "cpu") -> tuple[LearningTask, ...]:
    """The tasks for every source that is here with all of its data, the long ones first."""
    found = []
    for line in planned.lines:
        if line.missing or line.checkpoint is None:
            continue
        loss = line.line.source.loss
        found += [
            LearningTask(
                source=loss,
                task_loss=task_loss,
                seed=seed,
                checkpoint=line.checkpoint.path,
                data=line.line.data,
                limit=line.scale.limit,
                batch_size=line.scale.batch_size,
                length=LENGTHS[planned.scale],
                folder=where / planned.scale / loss / f"{task_loss or 'baselines'}-{seed}",
                device=device,
            )
            for task_loss in (*TASK_LOSSES[loss], None)
            for seed in line.scale.seeds
        ]
    found.sort(key=lambda task: task.task_loss is None)
    return tuple(found)


def run_tasks(
    tasks: Sequence[LearningTask],
    *,
    workers: int = 1,
    done: Callable[[LearningTask], object] | None = None,
) -> MetaOutcome:
    """Run every task, or read what it left; `done` is called for each."""
    run = run_piece if workers == 1 else run_piece_quietly
    results = run_all(run, tasks, workers=workers, done=done)
    learned, baselines_of = [], {}
    for task, result in sorted(zip(tasks, results, strict=True), key=_place):
        if task.task_loss is None or result.fits is None:
            baselines_of[task.source, task.seed] = result.errors
        else:
            objective = LearnedObjective.load(task.folder / LEARNED_NAME)
            key = (task.source, task.task_loss, task.seed)
            learned.append(Learned(*key, objective, result.fits, result.errors))
    return MetaOutcome(tuple(learned), baselines_of)


def _place(item: tuple[LearningTask, LearningResult]) -> tuple[str, str, int]:
    task, _ = item
    return task.source, task.task_loss or "", task.seed


def run_piece_quietly(task: LearningTask) -> LearningResult:
    """The same, with its progress in a file: several at once would write over one another."""
    task.folder.mkdir(parents=True, exist_ok=True)
    with (task.folder / LOG_NAME).open("a") as log, redirect_stderr(log):
        return run_piece(task)


def run_piece(task: LearningTask) -> LearningResult:
    """Run one task on one thread, or continue it, or read what it left."""
    with one_thread():
        source = load_checkpoint(task.checkpoint)
        target = Target(data=task.data, limit=task.limit)
        if task.task_loss is None:
            return LearningResult(_scores(task, source, target, baselines(source)))
        learned = _learned(task, task.task_loss, source, target)
        logits = source_logits(
            source,
            target.learn_shifts(),
            task.length.fit_logits,
            batch_size=task.batch_size,
            device=task.device,
        )
        fits = fit(learned, logits)
        fits.write(task.folder / FIT_NAME)
        fitted = {f"{name} fit": found.objective for name, found in fits.by_name().items()}
        return LearningResult(_scores(task, source, target, {"learned": learned, **fitted}), fits)


def _learned(
    task: LearningTask, task_loss: str, source: Checkpoint, target: Target
) -> LearnedObjective:
    run = MetaRun(
        source=source,
        shifts=target.learn_shifts(),
        recipe=task.length.recipe(task_loss, task.batch_size, task.seed),
        out=task.folder,
        facts={"target": target.record(), "checkpoint": str(task.checkpoint)},
        device=task.device,
    )
    return learn(run)


def _scores(
    task: LearningTask, source: Checkpoint, target: Target, objectives: dict[str, Objective | None]
) -> Errors:
    scoring = Scoring(
        source=source,
        shifts=target.score_shifts(),
        optimizer=task.length.optimizer,
        batch_size=task.batch_size,
        seed=task.seed,
        device=task.device,
    )
    return score(scoring, objectives, task.folder / SCORES_NAME)
