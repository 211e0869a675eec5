"""The paper's claims as data, and the one rule that judges them by comparisons.

A claim says what the paper found; a comparison is a number of ours with intervals. The verdict is

    contradicted      if one comparison speaks against the claim for sure,
    confirmed         if every comparison speaks for it for sure,
    not told apart    otherwise.

"For sure" is asked of every interval that a comparison has, over images and over streams. Where two
methods are said to differ, the p-value has to stay low after Holm's correction over all such
comparisons of one table.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal, get_args

from fenchel.names import unknown
from fenchel.report.several import LEVEL, holm

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Kind = Literal["ahead", "no worse", "level", "reaches"]
Word = Literal["confirmed", "not told apart", "contradicted", "not run"]
Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One finding of the paper.

    Attributes:
        words: what the paper says, close to its own words.
        paper: where it says so.
        kind: how comparisons speak for it, see `side`.
        bound: the points within which two things match, or the value to reach.
        by: where its comparisons come from; empty if nothing of it was run.
        facts: what to compare there.
        change: what would change the verdict, or what is needed for one.
    """

    words: str
    paper: str
    change: str
    kind: Kind = "ahead"
    bound: float = 0.0
    by: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def table(self) -> str:
        """The table or experiment that it is about, whose comparisons are corrected together."""
        return str(self.facts.get("table", self.by))

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise unknown("kind of claim", self.kind, get_args(Kind))


@dataclass(frozen=True)
class Evidence:
    """One comparison behind a claim, in points; a positive estimate speaks for the claim.

    Attributes:
        what: what is compared with, as it is shown.
        estimate: the difference, or the value where a claim is about one.
        intervals: at 95 %, the first as it is shown, all of them asked for the verdict.
        p_value: for a difference of zero.
    """

    what: str
    estimate: float
    intervals: tuple[Interval, ...]
    p_value: float


@dataclass(frozen=True)
class Judgement:
    """A verdict, the comparison that decides it, and how many comparisons speak for the claim for sure."""

    claim: Claim
    word: Word
    deciding: Evidence | None = None
    speaking_for: int = 0
    comparisons: int = 0


def side(kind: Kind, bound: float, interval: Interval) -> int:
    """What one interval says: 1 for the claim, -1 against it, 0 neither.

    ahead: the difference is positive. no worse: it is above -bound. level: it lies within ± bound.
    reaches: the value is at least the bound.

    >>> side("ahead", 0, (0.1, 0.5)), side("level", 0.5, (0.1, 0.7)), side("no worse", 0.5, (-2, -1))
    (1, 0, -1)
    """
    low, high = interval
    if kind == "level":
        return int(-bound <= low and high <= bound) - int(low > bound or high < -bound)
    edge = {"ahead": 0.0, "no worse": -bound, "reaches": bound}[kind]
    return int(low > edge) - int(high < edge)


def judge(
    claims: Sequence[tuple[Claim, Sequence[Evidence]]], *, together: bool = False
) -> list[Judgement]:
    """A verdict on every claim, corrected for the number of comparisons behind those of its table.

    together: correct over all comparisons of all tables at once, which is stricter.
    """
    families: dict[str, dict[tuple[int, int], float]] = {}
    for place, (claim, comparisons) in enumerate(claims):
        if claim.kind == "ahead":
            family = families.setdefault("" if together else claim.table, {})
            family |= {(place, k): each.p_value for k, each in enumerate(comparisons)}
    corrected = {key: p for family in families.values() for key, p in holm(family).items()}
    return [
        _judged(claim, [(e, corrected.get((place, k), 0.0)) for k, e in enumerate(comparisons)])
        for place, (claim, comparisons) in enumerate(claims)
    ]


def _judged(claim: Claim, comparisons: Sequence[tuple[Evidence, float]]) -> Judgement:
    """The verdict by comparisons with their corrected p-values."""
    if not comparisons:
        return Judgement(claim, "not run")
    said = [(_said(claim, each, p_value), each) for each, p_value in comparisons]
    lowest = min(answer for answer, _ in said)
    words: dict[int, Word] = {1: "confirmed", 0: "not told apart", -1: "contradicted"}
    deciding = min(
        (each for answer, each in said if answer == lowest),
        key=lambda each: -abs(each.estimate) if claim.kind == "level" else each.estimate,
    )
    speaking_for = sum(answer == 1 for answer, _ in said)
    return Judgement(claim, words[lowest], deciding, speaking_for, len(said))


def _said(claim: Claim, evidence: Evidence, p_value: float) -> int:
    """What all intervals of a comparison say together; nothing where they disagree."""
    sides = {side(claim.kind, claim.bound, interval) for interval in evidence.intervals}
    return sides.pop() if len(sides) == 1 and p_value < LEVEL else 0


def read_claims() -> tuple[Claim, ...]:
    """The claims of the paper, in its order."""
    file = files("fenchel.paper") / "tables" / "claims.toml"
    values = tomllib.loads(file.read_text(encoding="utf-8"))
    return tuple(Claim(**claim) for claim in values["claims"])
