"""The paper's claims with our verdicts: one row each in `claims.csv`, and the first table of the page."""

from __future__ import annotations

from functools import cache

from evidence import evidence_for
from reading import Row, over_streams, rows_of

from fenchel.paper.claims import Claim, Evidence, Judgement, judge, read_claims
from fenchel.report.layout import Layout, TableEntry, to_csv, to_markdown

COLUMNS = (
    "claim", "paper", "kind", "bound", "verdict", "decided_by", "estimate", "low", "high",
    "streams_low", "streams_high", "p_value", "speaking_for", "comparisons", "would_change_it",
    "verdict_corrected_over_all",
)  # fmt: skip


def claims_csv() -> str:
    """Every claim with its verdict and the comparison that decides it."""
    strict = [found.word for found in judgements(together=True)]
    rows = [(*_row(found), word) for found, word in zip(judgements(), strict, strict=True)]
    return to_csv(COLUMNS, rows)


def judgements(*, together: bool = False) -> list[Judgement]:
    """The verdict on every claim of the paper; corrected table by table, or over all of them together."""
    return judge(_compared(), together=together)


@cache
def _compared() -> list[tuple[Claim, list[Evidence]]]:
    return [(claim, evidence_for(claim)) for claim in read_claims()]


def _row(found: Judgement) -> tuple[object, ...]:
    claim, deciding = found.claim, found.deciding
    numbers: tuple[object, ...] = (None,) * 7
    if deciding is not None:
        first, *others = deciding.intervals
        second = others[0] if others else (None, None)
        numbers = (deciding.what, deciding.estimate, *first, *second, deciding.p_value)
    return (
        *(claim.words, claim.paper, claim.kind, claim.bound, found.word),
        *(*numbers, found.speaking_for, found.comparisons, claim.change),
    )


def claims_table() -> str:
    """The claims of the paper, our verdicts, the numbers behind them, and what would change them."""
    headings = ("the paper's claim", "verdict", "decided by", "would change it")
    rows = tuple(
        (
            TableEntry(f"{row['claim']} ({row['paper']})"),
            TableEntry(row["verdict"], "best" if row["verdict"] == "confirmed" else ""),
            TableEntry(_number(row)),
            TableEntry(row["would_change_it"]),
        )
        for row in rows_of("claims")
    )
    return to_markdown(Layout("", headings, rows, len(headings))).rstrip() + "\n"


def _number(row: Row) -> str:
    """`MEMO: -0.14 [-0.29, +0.02], over streams [-0.63, +0.36]; for sure 2 of 3`."""
    if not row["estimate"]:
        return "-"
    text = f"{row['decided_by']}: {_signed(row, 'estimate')} [{_signed(row, 'low')}, {_signed(row, 'high')}]"
    if row["streams_low"]:
        streams = over_streams(row)
        text += f", over streams {streams}" if streams.startswith("[") else f", {streams}"
    if int(row["comparisons"]) > 1:
        text += f"; for sure {row['speaking_for']} of {row['comparisons']}"
    return text


def _signed(row: Row, column: str) -> str:
    """A difference with its sign; a share or R² without."""
    value = round(float(row[column]), 2) + 0.0  # no negative zero
    return f"{value:.2f}" if row["kind"] == "reaches" else f"{value:+.2f}"


def claims_with(verdict: str) -> int:
    """How many claims have a verdict."""
    return sum(row["verdict"] == verdict for row in rows_of("claims"))


def claims_judged() -> int:
    """How many claims were put to the test."""
    return sum(row["verdict"] != "not run" for row in rows_of("claims"))


def claims_turned() -> int:
    """How many verdicts would be another if all comparisons were corrected together."""
    rows = rows_of("claims")
    return sum(row["verdict"] != row["verdict_corrected_over_all"] for row in rows)


def closely() -> str:
    """The share that a formula has to explain of an objective to fit it closely."""
    (bound,) = {row["bound"] for row in rows_of("claims") if row["decided_by"] == "R²"}
    return bound
