"""Meta-learned objectives in numbers: errors beside the paper's, fits, and the rows behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fenchel.bench.presets.base import Line
from fenchel.bench.presets.meta_pieces import Learned, MetaOutcome
from fenchel.objectives import Quadratic, ScaledEntropy
from fenchel.report.layout import Entry, Layout, to_csv
from fenchel.report.tables import Measurement
from fenchel.train.meta import Fits, means
from fenchel.train.meta.score import Errors

Groups = dict[tuple[str, str], list[Learned]]
"""By source and task loss: an objective a seed."""


def grouped(outcome: MetaOutcome) -> Groups:
    """The learned objectives by source and task loss."""
    groups: Groups = {}
    for entry in outcome.learned:
        groups.setdefault((entry.source, entry.task_loss), []).append(entry)
    return groups


def error_table(outcome: MetaOutcome, lines: Sequence[Line]) -> Layout:
    """The mean error over corruptions, with its spread over seeds, beside the paper's."""
    published = {line.source.loss: line.runs for line in lines}
    rows: list[tuple[Entry, ...]] = []
    for (source, task_loss), entries in grouped(outcome).items():
        errors = mean_errors(outcome, entries)
        lowest = min(measured.mean for measured in errors.values())
        for name, measured in errors.items():
            paper = published[source][name].error
            difference = "" if paper is None else f"{measured.mean - paper:+.2f}"
            rows.append(
                (
                    Entry(source, "row" if name == "learned" else ""),
                    Entry(task_loss),
                    Entry(name),
                    Entry(
                        measured.text(2), "best" if measured.mean == lowest else "", measured.mean
                    ),
                    Entry("-" if paper is None else f"{paper:.2f}"),
                    Entry(difference),
                )
            )
    caption = "online error in %, mean ± standard deviation over seeds; lowest of ours in bold"
    headings = ("source", "task loss", "objective", "ours", "paper", "difference")
    return Layout(caption, headings, tuple(rows), 3)


def mean_errors(outcome: MetaOutcome, entries: Sequence[Learned]) -> dict[str, Measurement]:
    """By objective: the mean over corruptions, a value a seed."""
    by_seed = [means(outcome.errors_of(entry)) for entry in entries]
    return {name: Measurement(tuple(errors[name] for errors in by_seed)) for name in by_seed[0]}


def errors_by_seed(
    outcome: MetaOutcome, entries: Sequence[Learned], name: str
) -> npt.NDArray[np.float64]:
    """The errors of one objective: (seeds, corruptions)."""
    return np.array([list(outcome.errors_of(entry)[name].values()) for entry in entries])


def fit_measures(entries: Sequence[Learned]) -> dict[str, Measurement]:
    """How well the formulas explain the objectives of several seeds: a number a seed, by name."""
    fits = [entry.fits for entry in entries]
    return {
        "r2_entropy": Measurement(tuple(fit.entropy.r_squared for fit in fits)),
        "r2_quadratic": Measurement(tuple(fit.quadratic.r_squared for fit in fits)),
        "aic_quadratic_minus_entropy": Measurement(
            tuple(fit.quadratic.aic - fit.entropy.aic for fit in fits)
        ),
        "temperature": Measurement(tuple(fit.entropy.objective.temperature for fit in fits)),
        "r2_linear": Measurement(tuple(fit.linear for fit in fits)),
        "beyond_linear_entropy": Measurement(tuple(fit.entropy.beyond_linear for fit in fits)),
        "beyond_linear_quadratic": Measurement(tuple(fit.quadratic.beyond_linear for fit in fits)),
    }


def entropy_wins(entries: Sequence[Learned]) -> int:
    """The number of seeds in which the entropy explains more."""
    return sum(entry.fits.better == "entropy" for entry in entries)


def fit_table(outcome: MetaOutcome) -> Layout:
    """How well each formula explains the learned objectives, and which does better."""
    shown = {
        "r2_entropy": ("R² entropy", 3),
        "r2_quadratic": ("R² quadratic", 3),
        "aic_quadratic_minus_entropy": ("AIC quadratic - entropy", 0),
        "temperature": ("fitted T", 2),
        "r2_linear": ("R² linear", 3),
        "beyond_linear_entropy": ("beyond it: entropy", 3),
        "beyond_linear_quadratic": ("beyond it: quadratic", 3),
    }
    rows = []
    for (source, task_loss), entries in grouped(outcome).items():
        measured, wins = fit_measures(entries), entropy_wins(entries)
        rows.append(
            (
                Entry(source),
                Entry(task_loss),
                Entry(f"{wins} of {len(entries)}", value=wins),
                *(
                    Entry(measured[name].text(digits), value=measured[name].mean)
                    for name, (_, digits) in shown.items()
                ),
            )
        )
    headings = (
        "source",
        "task loss",
        "entropy better",
        *(heading for heading, _ in shown.values()),
    )
    caption = (
        "fits to the learned objectives, mean ± standard deviation over seeds; a lower AIC is better; beyond "
        "it: the share that a formula explains of what no linear function of the logits does"
    )
    return Layout(caption, headings, tuple(rows), 2)


_FIT_HEADINGS = (
    "better", "r2_entropy", "r2_quadratic", "aic_entropy", "aic_quadratic",
    "r2_linear", "beyond_linear_entropy", "beyond_linear_quadratic",
    "entropy_alpha", "entropy_T", "entropy_C", "quadratic_A", "quadratic_C",
)  # fmt: skip


def learned_csv(outcome: MetaOutcome) -> str:
    """A row for each source, task loss, seed and objective, in full precision.

    The baselines know of no task loss: theirs is empty, and so are their fits. After the mean error come
    the errors under each corruption.
    """
    corruptions = _corruptions(outcome)
    headings = ("source", "task_loss", "seed", "objective", "error", *_FIT_HEADINGS, *corruptions)
    values: list[tuple[object, ...]] = []
    for (source, seed), errors in outcome.baselines.items():
        values += _rows((source, None, seed), errors, (None,) * len(_FIT_HEADINGS))
    for entry in outcome.learned:
        key = (entry.source, entry.task_loss, entry.seed)
        values += _rows(key, entry.errors, _fit_values(entry.fits))
    return to_csv(headings, values)


def _corruptions(outcome: MetaOutcome) -> list[str]:
    errors = next(iter(outcome.baselines.values()), {})
    return [label.replace(" ", "_") for by_shift in list(errors.values())[:1] for label in by_shift]


def _rows(
    key: tuple[object, ...], errors: Errors, fits: tuple[object, ...]
) -> list[tuple[object, ...]]:
    mean: Mapping[str, float] = means(errors)
    return [(*key, name, mean[name], *fits, *by.values()) for name, by in errors.items()]


def _fit_values(fits: Fits) -> tuple[object, ...]:
    entropy, quadratic = fits.entropy.objective, fits.quadratic.objective
    assert isinstance(entropy, ScaledEntropy)
    assert isinstance(quadratic, Quadratic)
    quality = (fits.entropy.r_squared, fits.quadratic.r_squared)
    criteria = (fits.entropy.aic, fits.quadratic.aic)
    return (
        fits.better,
        *quality,
        *criteria,
        *(fits.linear, fits.entropy.beyond_linear, fits.quadratic.beyond_linear),
        *(entropy.alpha, entropy.temperature, entropy.offset),
        *(quadratic.a, quadratic.offset),
    )
