"""The comparisons behind the paper's claims, from what is published here: one function per kind of source.

Every difference is turned so that a positive one speaks for the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from reading import rows_of
from retabling import compared
from scipy import stats

from fenchel.bench.record import Record
from fenchel.paper.claims import Claim, Evidence
from fenchel.paper.comparison import Comparison
from fenchel.paper.gaussian_map import Map, as_map, improves_alone, rises_fastest
from fenchel.paper.gaussian_map_figure import read_map
from fenchel.paper.pairing import paired
from fenchel.report.student import CONFIDENCE, StreamDifference, student

Facts = Mapping[str, Any]
LAST = 10
"""Batches at the end of a stream over which its task loss is compared."""
CALLED = {"soft": "softmax label", "hard": "hard label", "robust": "robust label", "memo": "MEMO"}


def evidence_for(claim: Claim) -> list[Evidence]:
    """The comparisons behind a claim; none if it was not run."""
    return SOURCES[claim.by](claim.facts) if claim.by else []


def from_cells(facts: Facts) -> list[Evidence]:
    """Errors of methods on lines of a table, each against others there or elsewhere, on the same images.

    None at all if one of them is missing: a claim is judged by everything that it is about.
    """
    table, lines, found = facts["table"], facts["lines"], []
    both = zip(lines, facts.get("against_lines", lines), strict=True)
    for (line, other_line), method in product(both, facts["methods"]):
        for other in facts.get("against", [method]):
            theirs = _run(facts.get("against_table", table), other_line, other)
            pair = paired(theirs, _run(table, line, method))
            if pair is None:
                return []
            images, streams = pair
            intervals = ((images.low, images.high), (streams.low, streams.high))
            named = other if len(facts["methods"]) == 1 else method
            what = CALLED.get(named, named) + (f", {line}" if len(lines) > 1 else "")
            found.append(Evidence(what, images.estimate, intervals, images.p_value))
    return found


def _run(table: str, line: str, method: str) -> Comparison:
    (found,) = [r for r in compared(table)[1] if (r.line.title, r.method) == (line, method)]
    return found


def from_task_loss(facts: Facts) -> list[Evidence]:
    """The task loss at the end of the streams, by Student over corruptions."""
    ours = _last_losses(_run(facts["table"], facts["line"], facts["method"]).records)
    found = []
    for other in facts["against"]:
        theirs = _last_losses(_run(facts["table"], facts["line"], other).records)
        differences = [theirs[shift] - ours[shift] for shift in ours if shift in theirs]
        found.append(_of(CALLED.get(other, other), student(differences)))
    return found


def _last_losses(records: Sequence[Record]) -> dict[str, float]:
    """By shift, the mean over seeds."""
    losses: dict[str, list[float]] = {}
    for record in records:
        last = float(np.mean(record.batch_task_losses[-LAST:]))
        losses.setdefault(record.cell.shift_title, []).append(last)
    return {shift: float(np.mean(found)) for shift, found in losses.items()}


def from_learned(facts: Facts) -> list[Evidence]:
    """Errors of objectives that were learned or fitted, by Student over corruptions."""
    other_task = facts.get("against_task_loss", facts["task_loss"])
    ours = _errors(facts["source"], facts["task_loss"], facts["objective"])
    theirs = _errors(facts["source"], other_task, facts["against"])
    return [_of(facts["against"], student((theirs - ours).mean(0).tolist()))]


def _errors(source: str, task_loss: str, objective: str) -> npt.NDArray[np.float64]:
    """Errors by seed and corruption; the baselines know of no task loss."""
    rows = [
        row
        for row in rows_of("fig-meta")
        if (row["source"], row["objective"]) == (source, objective)
        and row["task_loss"] in ("", task_loss)
    ]
    rows.sort(key=lambda row: int(row["seed"]))
    first = list(rows[0]).index("quadratic_C") + 1
    return np.array([[float(value) for value in list(row.values())[first:]] for row in rows])


def from_fits(facts: Facts) -> list[Evidence]:
    """How much of a learned objective a formula explains, by Student over seeds."""
    values = [
        float(row[facts["column"]])
        for row in rows_of("fig-meta")
        if (row["source"], row["task_loss"]) == (facts["source"], facts["task_loss"])
        and row["objective"] == "learned"
    ]
    return [_of("R²", student(values))]


def from_gaussians(facts: Facts) -> list[Evidence]:
    """The share of draws that show a panel of the paper, with the exact binomial interval."""
    low, high = facts["variances"]
    found = []
    for shift in facts["shifts"]:
        held = [
            PANELS[facts["panel"]](methods)
            for (variances, rate, at, _), methods in _map().items()
            if (variances, rate, at) == ((low, high), facts["rate"], shift)
        ]
        exact = stats.binomtest(sum(held), len(held))
        interval = exact.proportion_ci(CONFIDENCE, method="exact")
        share = sum(held) / len(held)
        bounds = (float(interval.low), float(interval.high))
        found.append(Evidence(f"share of draws at λ = {shift:g}", share, (bounds,), exact.pvalue))
    return found


PANELS = {"fastest": rises_fastest, "alone": improves_alone}


@cache
def _map() -> Map:
    return as_map(read_map(rows_of("fig-gaussian-map")))


def _of(what: str, found: StreamDifference) -> Evidence:
    return Evidence(what, found.estimate, ((found.low, found.high),), found.p_value)


SOURCES: Mapping[str, Callable[[Facts], list[Evidence]]] = {
    "cells": from_cells,
    "task-loss": from_task_loss,
    "learned": from_learned,
    "fits": from_fits,
    "gaussians": from_gaussians,
}
