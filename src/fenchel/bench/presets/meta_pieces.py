"""The experiment on meta-learned objectives in pieces that do not depend on one another.

A piece learns one objective, fits it and scores it with its fits, or it scores the baselines, which know
of no task loss. Its results lie in its folder and what is there is not done again, so the pieces may
run in any order, at once, or one after the other, and a killed run goes on: the numbers are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path

from fenchel.bench.parallel import run_all
from fenchel.bench.presets.available import PresetPlan
from fenchel.bench.presets.meta import LENGTHS, TASK_LOSSES, Length
from fenchel.bench.running import one_thread
from fenchel.models import Checkpoint, load_checkpoint
from fenchel.objectives import LearnedObjective, Objective
from fenchel.train.meta import (
    Fits,
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

SCORES_NAME, LOG_NAME = "scores.json", "log.txt"


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One objective to learn for a source, or, without a task loss, the baselines of the source.

    Attributes:
        source: the training loss of the source, by which it is told from the others.
        checkpoint: where the source is.
        data, limit, batch_size, length: see `Target`, `Scale` and `Length`.
        folder: of this piece alone.
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
class PieceResult:
    """Errors by objective and corruption; of a piece that learned, also the fits."""

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
    """All that came out, for the sources that were here.

    Attributes:
        learned: by source, task loss and seed, in this order.
        baselines: errors by objective and corruption, by source and seed.
    """

    learned: tuple[Learned, ...]
    baselines: dict[tuple[str, int], Errors]

    def errors_of(self, entry: Learned) -> Errors:
        """Every objective that was scored for the source and seed of `entry`."""
        return {**self.baselines[entry.source, entry.seed], **entry.errors}


def pieces_of(planned: PresetPlan, where: Path, device: str = "cpu") -> tuple[Piece, ...]:
    """The pieces for every source that is here with all of its data, the long ones first."""
    found = []
    for line in planned.lines:
        if line.missing or line.checkpoint is None:
            continue
        loss = line.line.source.loss
        found += [
            Piece(
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
    found.sort(key=lambda piece: piece.task_loss is None)
    return tuple(found)


def run_pieces(
    pieces: Sequence[Piece],
    *,
    workers: int = 1,
    done: Callable[[Piece], object] | None = None,
) -> MetaOutcome:
    """Run every piece, or read what it left; `done` hears of each."""
    run = run_piece if workers == 1 else run_piece_quietly
    results = run_all(run, pieces, workers=workers, done=done)
    learned, baselines_of = [], {}
    for piece, result in sorted(zip(pieces, results, strict=True), key=_place):
        if piece.task_loss is None or result.fits is None:
            baselines_of[piece.source, piece.seed] = result.errors
        else:
            objective = LearnedObjective.load(piece.folder / LEARNED_NAME)
            key = (piece.source, piece.task_loss, piece.seed)
            learned.append(Learned(*key, objective, result.fits, result.errors))
    return MetaOutcome(tuple(learned), baselines_of)


def _place(item: tuple[Piece, PieceResult]) -> tuple[str, str, int]:
    piece, _ = item
    return piece.source, piece.task_loss or "", piece.seed


def run_piece_quietly(piece: Piece) -> PieceResult:
    """The same, with its progress in a file: several at once would write over one another."""
    piece.folder.mkdir(parents=True, exist_ok=True)
    with (piece.folder / LOG_NAME).open("a") as log, redirect_stderr(log):
        return run_piece(piece)


def run_piece(piece: Piece) -> PieceResult:
    """Run one piece on one thread, or continue it, or read what it left."""
    with one_thread():
        source = load_checkpoint(piece.checkpoint)
        target = Target(data=piece.data, limit=piece.limit)
        if piece.task_loss is None:
            return PieceResult(_scores(piece, source, target, baselines(source)))
        learned = _learned(piece, piece.task_loss, source, target)
        logits = source_logits(
            source,
            target.learn_shifts(),
            piece.length.fit_logits,
            batch_size=piece.batch_size,
            device=piece.device,
        )
        fits = fit(learned, logits)
        fits.write(piece.folder / FIT_NAME)
        fitted = {f"{name} fit": found.objective for name, found in fits.by_name().items()}
        return PieceResult(_scores(piece, source, target, {"learned": learned, **fitted}), fits)


def _learned(piece: Piece, task_loss: str, source: Checkpoint, target: Target) -> LearnedObjective:
    run = MetaRun(
        source=source,
        shifts=target.learn_shifts(),
        recipe=piece.length.recipe(task_loss, piece.batch_size, piece.seed),
        out=piece.folder,
        facts={"target": target.record(), "checkpoint": str(piece.checkpoint)},
        device=piece.device,
    )
    return learn(run)


def _scores(
    piece: Piece, source: Checkpoint, target: Target, objectives: dict[str, Objective | None]
) -> Errors:
    scoring = Scoring(
        source=source,
        shifts=target.score_shifts(),
        optimizer=piece.length.optimizer,
        batch_size=piece.batch_size,
        seed=piece.seed,
        device=piece.device,
    )
    return score(scoring, objectives, piece.folder / SCORES_NAME)
