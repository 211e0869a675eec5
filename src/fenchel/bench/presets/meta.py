"""The meta-learned objective: learn it for a source, fit it, and adapt with it beside the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fenchel.bench.presets.available import FoundCheckpoint, LinePlan
from fenchel.bench.presets.base import Line, Preset, Run, SourceModel, add
from fenchel.bench.presets.comparison import Comparison
from fenchel.bench.running import one_thread
from fenchel.models import load_checkpoint
from fenchel.names import parse_spec
from fenchel.objectives import LearnedObjective
from fenchel.train.meta import (
    Fits,
    MetaRun,
    Recipe,
    Scoring,
    Target,
    baselines,
    fit,
    learn,
    score,
    source_logits,
)

META = "fig-meta"
FIT_LOGITS = 2000
_NETWORKS = ("resnet26_wide", "resnet26")


def _line(loss: str, **runs: float | None) -> Line:
    published = {name.replace("_", " "): Run(error=error) for name, error in runs.items()}
    source = SourceModel(
        data="cifar10", loss=loss, architectures=_NETWORKS, recipe="--preset paper"
    )
    title = f"CIFAR-10-C, source {loss}"
    return Line(title=title, data="cifar10-c", source=source, runs=published)


add(
    Preset(
        name=META,
        about="curves and errors of the meta-learned objective, CIFAR-10-C",
        lines=(
            _line(
                "cross-entropy", bn=None, entropy=13.14, conjugate=None, learned=12.35,
                entropy_fit=12.32, quadratic_fit=None,
            ),
            _line(
                "squared", bn=None, entropy=14.57, conjugate=None, learned=13.48,
                entropy_fit=None, quadratic_fit=13.20,
            ),
        ),
        notes=(
            "Learned on the four validation corruptions, scored on the fifteen test ones. The released "
            "code learns and scores on the same images; here one half is for learning, the other for "
            "scoring.",
            "The task loss is the source's own. Adaptation by SGD 0.001 for all, our choice. Variants "
            "(noise, severity, data, network) are runs of 'fenchel meta sweep'.",
        ),
        figure="learned",
    )
)  # fmt: skip

_LENGTHS: Mapping[str, tuple[int, int]] = {"full": (100, 50), "cpu": (5, 20), "smoke": (1, 5)}
"""Epochs and batches of the learning: how many images it sees is part of the scale."""


@dataclass(frozen=True)
class MetaOutcome:
    """What came out for one source."""

    learned: LearnedObjective
    fits: Fits
    errors: Mapping[str, float]
    """Mean error over the test corruptions in percent, by objective."""


def run_meta(planned: LinePlan, folder: Path, device: str = "cpu") -> MetaOutcome:
    """Learn, fit and score for one line, on one thread; a second call continues the first."""
    if planned.checkpoint is None:
        raise ValueError(f"{planned.line.title} needs a source model; none was found. Train one.")
    with one_thread():
        return _run_meta(planned, planned.checkpoint, folder, device)


def _run_meta(
    planned: LinePlan, checkpoint: FoundCheckpoint, folder: Path, device: str
) -> MetaOutcome:
    source = load_checkpoint(checkpoint.path)
    epochs, batches = _LENGTHS[planned.scale.name]
    recipe = Recipe(
        task_loss=parse_spec(planned.line.source.loss)[0],
        epochs=epochs,
        batches=batches,
        batch_size=planned.scale.batch_size,
        seed=planned.scale.seeds[0],
    )
    target = Target(data=planned.line.data, limit=planned.scale.limit)
    facts = {"target": target.record(), "checkpoint": str(checkpoint.path)}
    run = MetaRun(
        source=source,
        shifts=target.learn_shifts(),
        recipe=recipe,
        out=folder,
        facts=facts,
        device=device,
    )
    learned = learn(run)
    logits = source_logits(source, target.learn_shifts(), FIT_LOGITS, device=device)
    fits = fit(learned, logits)
    scoring = Scoring(
        source=source,
        shifts=target.score_shifts(),
        optimizer=recipe.optimizer,
        batch_size=recipe.batch_size,
        seed=recipe.seed,
        device=device,
    )
    fitted = {f"{name} fit": found.objective for name, found in fits.by_name().items()}
    objectives = {**baselines(source), "learned": learned, **fitted}
    errors = score(scoring, objectives, folder / "scores.json")
    means = {name: sum(by.values()) / len(by) for name, by in errors.items()}
    return MetaOutcome(learned, fits, means)


def compare_meta(planned: LinePlan, outcome: MetaOutcome | None) -> tuple[Comparison, ...]:
    """Our errors for the objectives of a line; without an outcome, what is missing."""
    return tuple(
        Comparison(
            line=planned.line,
            method=name,
            run=run,
            errors=() if outcome is None else (outcome.errors[name],),
            shifts=planned.shifts,
            shifts_wanted=planned.shifts_wanted,
            failed=0,
        )
        for name, run in planned.line.runs.items()
    )
