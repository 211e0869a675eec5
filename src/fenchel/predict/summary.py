"""A run in words: whether adaptation did anything, helped or looks harmful, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fenchel.adapters.monitor import Verdict
from fenchel.predict.run import Outcome

OFTEN = 0.1
"""A run is suspect if more than this share of its batches is."""
WORSE = 2.0
"""Points of error that count as harm, where labels are known."""

_LESS = "Lower the learning rate, use larger batches, or keep the source model."


@dataclass(frozen=True)
class Summary:
    """What a run tells its user."""

    verdict: Verdict
    sentence: str
    advice: str
    harmful: bool
    """Whether the adapted predictions should not be used as they are."""
    notes: tuple[str, ...] = ()
    """What else happened: images that could not be used, updates that were left out."""


def summarised(outcome: Outcome) -> Summary:
    """The summary of a run."""
    verdict = _verdict(outcome)
    sentence, advice, harmful = (
        _in_errors(outcome, verdict) if outcome.tally.both else _in_signs(outcome, verdict)
    )
    return Summary(verdict, sentence, advice, harmful, tuple(_notes(outcome)))


def _verdict(outcome: Outcome) -> Verdict:
    tally = outcome.tally
    if tally.collapsed:
        return "collapsed"
    often = tally.suspect > OFTEN * max(1, tally.batches)
    return "suspect" if often or outcome.health.verdict == "suspect" else "healthy"


def _in_errors(outcome: Outcome, verdict: Verdict) -> tuple[str, str, bool]:
    """Where labels are known: did it help?"""
    tally = outcome.tally
    error, source = tally.error or 0.0, tally.source_error or 0.0
    rates = f"{error:.2f} % of the predictions are wrong, {source:.2f} % without adaptation."
    if verdict == "collapsed":
        said = "did harm" if error > source else "looks harmful"
        return f"Adaptation {said}: {rates} {_collapse(outcome)}", _LESS, True
    if not tally.difference_is_real:
        same = f"Adaptation made no difference that can be told from chance: {rates}"
        return same, "More images would tell, or a higher learning rate.", False
    if error < source:
        return f"Adaptation helped: {rates}", "", False
    return f"Adaptation did harm: {rates}", _LESS, error - source >= WORSE


def _in_signs(outcome: Outcome, verdict: Verdict) -> tuple[str, str, bool]:
    """Where labels are not known: does it look harmful?"""
    tally, reason = outcome.tally, outcome.health.reason
    if verdict == "collapsed":
        return f"Adaptation looks harmful. {_collapse(outcome)}", _LESS, True
    if not tally.compared:
        unknown = (
            "What adaptation did is unknown: the source model's predictions were not asked for"
        )
        return f"{unknown}.", "Run with source_predictions=auto to compare the two.", False
    changed = (
        f"{tally.changed_percent:.1f} % of {tally.compared} compared predictions differ from the source "
        "model's"
    )
    if verdict == "suspect":
        advice = f"Look at the images whose class changed. {_LESS}"
        return f"Adaptation may be harmful: {reason}; {changed}.", advice, False
    if not tally.changed:
        return "Adaptation changed no class.", "", False
    advice = "Labels of a few hundred images would tell whether the error fell."
    return f"Adaptation looks healthy: {changed}; {reason}.", advice, False


def _collapse(outcome: Outcome) -> str:
    tally = outcome.tally
    now = outcome.health
    where = f"From batch {tally.first_collapse} on, {tally.collapsed} batches were judged collapsed"
    return f"{where}: {now.reason}." if now.verdict == "collapsed" else f"{where}; later ones not."


def _notes(outcome: Outcome) -> list[str]:
    tally, health = outcome.tally, outcome.health
    notes = []
    if bad := tally.unreadable + tally.left_out:
        notes.append(
            f"{bad} of {tally.images} images could not be used ({tally.unreadable} unreadable, "
            f"{tally.left_out} left out); their rows say why"
        )
    if health.skips:
        notes.append(
            f"{health.skips} updates were skipped: {health.skipped_non_finite} because of numbers that are "
            f"not finite, {health.skipped_none_kept} because no sample was confident"
        )
    if health.pulled_back:
        notes.append(
            f"suspect parameters were drawn back towards the source {health.pulled_back} times"
        )
    if health.resets:
        notes.append(f"the adapter went back to healthy parameters {health.resets} times")
    if health.fell_back:
        notes.append(f"the source model's prediction was returned for {health.fell_back} batches")
    return notes


def as_entries(outcome: Outcome, summary: Summary) -> dict[str, Any]:
    """The summary as JSON has it."""
    tally, health = outcome.tally, outcome.health
    return {
        "images": tally.images,
        "finished": outcome.finished,
        "verdict": summary.verdict,
        "harmful": summary.harmful,
        "sentence": summary.sentence,
        "advice": summary.advice,
        "changed_percent": _rounded(tally.changed_percent),
        "compared": tally.compared,
        "source_error_percent": _rounded(tally.source_error),
        "error_percent": _rounded(tally.error),
        "labelled": tally.labelled,
        "batches": tally.batches,
        "updates": health.updates,
        "skipped_updates": health.skips,
        "resets": health.resets,
        "pulled_back": health.pulled_back,
        "fell_back": health.fell_back,
        "unreadable": tally.unreadable,
        "left_out": tally.left_out,
        "warnings": list(summary.notes),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
