"""Meta-learned objectives over all seeds as rows of numbers, from which pages are written."""

from __future__ import annotations

from collections.abc import Sequence

from fenchel.bench.presets.base import Line
from fenchel.bench.presets.meta_pieces import MetaOutcome
from fenchel.report.layout import to_csv
from fenchel.report.learned_numbers import (
    entropy_wins,
    errors_by_seed,
    fit_measures,
    grouped,
    mean_errors,
)
from fenchel.report.learned_verdict import paired_difference

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
