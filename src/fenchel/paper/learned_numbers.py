"""What learned objectives come to: errors, fits and a verdict, as tables and as rows of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fenchel.objectives import Quadratic, ScaledEntropy
from fenchel.paper.learned import BASELINES, EXPECTED, Learned, MetaOutcome
from fenchel.paper.preset import Line
from fenchel.report.layout import Layout, TableEntry, to_csv
from fenchel.report.student import student
from fenchel.report.tables import Measurement
from fenchel.train.meta import Fits, means
from fenchel.train.meta.score import Errors

Groups = dict[tuple[str, str], list[Learned]]

"""Learned objectives by source and task loss, one per seed."""


def grouped(outcome: MetaOutcome) -> Groups:
    """The learned objectives by source and task loss."""
    groups: Groups = {}
    for entry in outcome.learned:
        groups.setdefault((entry.source, entry.task_loss), []).append(entry)
    return groups


def error_table(outcome: MetaOutcome, lines: Sequence[Line]) -> Layout:
    """The mean error over corruptions, with its spread over seeds, beside the paper's."""
    published = {line.source.loss: line.runs for line in lines}
    rows: list[tuple[TableEntry, ...]] = []
    for (source, task_loss), entries in grouped(outcome).items():
        errors = mean_errors(outcome, entries)
        lowest = min(measured.mean for measured in errors.values())
        for name, measured in errors.items():
            paper = published[source][name].error
            difference = "" if paper is None else f"{measured.mean - paper:+.2f}"
            rows.append(
                (
                    TableEntry(source, "row" if name == "learned" else ""),
                    TableEntry(task_loss),
                    TableEntry(name),
                    TableEntry(
                        measured.text(2), "best" if measured.mean == lowest else "", measured.mean
                    ),
                    TableEntry("-" if paper is None else f"{paper:.2f}"),
                    TableEntry(difference),
                )
            )
    caption = "online error in %, mean ± standard deviation over seeds; lowest of ours in bold"
    headings = ("source", "task loss", "objective", "ours", "paper", "difference")
    return Layout(caption, headings, tuple(rows), 3)


def mean_errors(outcome: MetaOutcome, entries: Sequence[Learned]) -> dict[str, Measurement]:
    """The mean error over corruptions by objective, one value per seed."""
    by_seed = [means(outcome.errors_of(entry)) for entry in entries]
    return {name: Measurement(tuple(errors[name] for errors in by_seed)) for name in by_seed[0]}


def errors_by_seed(
    outcome: MetaOutcome, entries: Sequence[Learned], name: str
) -> npt.NDArray[np.float64]:
    """The errors of one objective: (seeds, corruptions)."""
    return np.array([list(outcome.errors_of(entry)[name].values()) for entry in entries])


def fit_measures(entries: Sequence[Learned]) -> dict[str, Measurement]:
    """How well the formulas explain the objectives of several seeds: one number per seed, by name."""
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
                TableEntry(source),
                TableEntry(task_loss),
                TableEntry(f"{wins} of {len(entries)}", value=wins),
                *(
                    TableEntry(measured[name].text(digits), value=measured[name].mean)
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


REFERENCE = "conjugate"


def errors_csv(outcome: MetaOutcome, lines: Sequence[Line]) -> str:
    """Errors by source, task loss and objective, beside the paper's and against the conjugate's."""
    published = {line.source.loss: line.runs for line in lines}
    rows = []
    for (source, task_loss), entries in grouped(outcome).items():
        reference = errors_by_seed(outcome, entries, REFERENCE)
        for name, measured in mean_errors(outcome, entries).items():
            against: tuple[float | None, ...] = (None, None, None)
            if name != REFERENCE:
                found = paired_difference(errors_by_seed(outcome, entries, name), reference)
                low, high = (found.estimate + sign * found.half_width for sign in (-1, 1))
                against = (found.estimate, low, high)
            paper = published[source][name].error
            row = (source, task_loss, name, measured.mean, measured.spread, paper)
            rows.append((*row, *against))
    headings = ("source", "task_loss", "objective", "ours", "ours_spread", "paper")
    return to_csv((*headings, "minus_conjugate", "low", "high"), rows)


def fits_csv(outcome: MetaOutcome) -> str:
    """How well each formula explains what was learned, by source and task loss."""
    rows: list[tuple[object, ...]] = []
    headings: list[str] = []
    for (source, task_loss), entries in grouped(outcome).items():
        measured = fit_measures(entries)
        headings = [heading for name in measured for heading in (name, f"{name}_spread")]
        numbers = [number for one in measured.values() for number in (one.mean, one.spread)]
        rows.append((source, task_loss, len(entries), entropy_wins(entries), *numbers))
    return to_csv(("source", "task_loss", "seeds", "entropy_better", *headings), rows)


@dataclass(frozen=True)
class PairedDifference:
    """Error of one objective minus that of another, in percent: negative where the first is better.

    The interval is Student's over corruptions, each the mean over seeds: seeds meet the same images, so
    they are no further samples, and `seeds_lower` says in how many the mean is lower.
    """

    estimate: float
    half_width: float
    seeds_lower: int
    seeds: int
    corruptions: int

    def __str__(self) -> str:
        low, high = self.estimate - self.half_width, self.estimate + self.half_width
        return (
            f"{self.estimate:+.2f} [{low:+.2f}, {high:+.2f}], lower in {self.seeds_lower} of "
            f"{self.seeds} seeds"
        )

    @property
    def word(self) -> str:
        """`better`, `worse`, or `not told apart` where the interval holds zero."""
        if not abs(self.estimate) > self.half_width:
            return "not told apart"
        return "better" if self.estimate < 0 else "worse"


def paired_difference(
    errors: npt.NDArray[np.float64], reference: npt.NDArray[np.float64]
) -> PairedDifference:
    """The difference of errors (seeds, corruptions), seed by seed and corruption by corruption.

    >>> paired_difference(np.array([[1.0, 2.0, 3.0]]), np.array([[2.0, 3.0, 4.5]])).word
    'better'
    """
    difference = errors - reference
    seeds, corruptions = difference.shape
    found = student(difference.mean(0).tolist())
    lower = int((difference.mean(1) < 0).sum())
    return PairedDifference(found.estimate, found.high - found.estimate, lower, seeds, corruptions)


def learned_verdict(outcome: MetaOutcome) -> list[str]:
    """Which formula explains what was learned, and how it compares with the others, line by line."""
    lines = []
    for (source, task_loss), entries in grouped(outcome).items():
        lines.append(f"source {source}, task {task_loss}: {_explained(entries)}")
        lines += [f"    {text}" for text in _compared(outcome, entries)]
    return lines


def _explained(entries: Sequence[Learned]) -> str:
    """Which fit has the lower AIC, and whether it is the expected one."""
    expected = EXPECTED[entries[0].source]
    count = sum(entry.fits.better == expected for entry in entries)
    entropy, quadratic = (
        Measurement(tuple(entry.fits.by_name()[name].r_squared for entry in entries)).text(3)
        for name in ("entropy", "quadratic")
    )
    agrees = "as the paper finds"
    if count < len(entries):
        agrees = "unlike the paper" if count == 0 else "so the seeds do not agree"
    return (
        f"the {expected} explains the learned objective better than the other formula in {count} of "
        f"{len(entries)} seeds, {agrees} (R² {entropy} entropy, {quadratic} quadratic)"
    )


def _compared(outcome: MetaOutcome, entries: Sequence[Learned]) -> list[str]:
    expected = f"{EXPECTED[entries[0].source]} fit"
    pairs = [("learned", name) for name in BASELINES]
    pairs += [(expected, "learned"), (expected, "conjugate")]
    found = []
    for first, second in pairs:
        difference = paired_difference(
            errors_by_seed(outcome, entries, first), errors_by_seed(outcome, entries, second)
        )
        found.append(f"{first} against {second}: {difference.word}, {difference}")
    return found
