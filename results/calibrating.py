"""What settings without labels cost, and which score without labels could choose a rate, as tables."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean, median

from reading import Row, rows_of
from scipy.stats import spearmanr
from tables import markdown

from fenchel.report.layout import TableEntry

NAMES = {"ce": "cross-entropy", "poly": "PolyLoss", "squared": "squared loss"}
TUNED, ALONE = "tuned on validation corruptions", "batch statistics alone"
HIGHER_IS_BETTER = (
    "marginal_entropy", "mutual_information", "agreement_with_source", "agreement_with_the_rate_below",
    "consistency_when_mirrored", "neighbourhood_density",
)  # fmt: skip
_KNOWN = ("source", "corruption", "learning_rate", "temperature", "images", "error")


Place = tuple[str, str]
"""A corruption and a seed."""
Errors = dict[Place, float]


def measured() -> dict[tuple[str, str], Errors]:
    """The error at each corruption and seed, by source and settings; seeds that ran on all corruptions."""
    rows = [row for source in NAMES for row in rows_of(f"settings-checks-{source}")]
    corruptions = {row["corruption"] for row in rows}
    by: dict[tuple[str, str], Errors] = defaultdict(dict)
    for row in rows:
        by[row["source"], row["settings"]][row["corruption"], row["seed"]] = float(row["error"])
    return {way: _whole_seeds(errors, corruptions) for way, errors in by.items()}


def _whole_seeds(errors: Errors, corruptions: set[str]) -> Errors:
    return {
        (corruption, seed): error
        for (corruption, seed), error in errors.items()
        if all((other, seed) in errors for other in corruptions)
    }


def table() -> str:
    """The mean error by how settings were chosen, its distance from the tuned one, the worst corruption."""
    by = measured()
    sources = list(dict.fromkeys(source for source, _ in by))
    headings = ["settings"]
    for source in sources:
        headings += [NAMES[source], "minus tuned", "worst against bn"]
    rows = []
    for name in dict.fromkeys(name for (_, name), errors in by.items() if errors):
        entries = [TableEntry(name)]
        for source in sources:
            entries += _of(by.get((source, name), {}), by[source, TUNED], by[source, ALONE])
        rows.append(tuple(entries))
    return markdown(headings, rows)


def _of(mine: Errors, tuned: Errors, alone: Errors) -> list[TableEntry]:
    shared = [place for place in mine if place in tuned and place in alone]
    if not shared:
        return [TableEntry("-")] * 3
    error, apart = fmean(mine[p] for p in shared), fmean(mine[p] - tuned[p] for p in shared)
    corruptions = {corruption for corruption, _ in shared}
    worst = max(
        fmean(mine[p] - alone[p] for p in shared if p[0] == corruption)
        for corruption in corruptions
    )
    return [
        TableEntry(f"{error:.2f}", value=error),
        TableEntry(f"{apart:+.2f}", value=apart),
        TableEntry(f"{worst:+.1f}", value=worst),
    ]


def protocol() -> str:
    """How many streams of how many images the table stands for, in words."""
    rows = [row for source in NAMES for row in rows_of(f"settings-checks-{source}")]
    images, shifts = {row["images"] for row in rows}, {row["corruption"] for row in rows}
    by = measured()
    seeds = [
        f"{len({seed for _, seed in by[source, TUNED]})} for {name}"
        for source, name in NAMES.items()
        if (source, TUNED) in by
    ]
    return f"{len(shifts)} corruptions, {'/'.join(sorted(images))} images each, seeds: {', '.join(seeds)}"


def scores() -> str:
    """The rank correlation of every score with the accuracy, by source."""
    rows = rows_of("score-checks")
    names = [name for name in rows[0] if name not in _KNOWN] if rows else []
    sources = list(dict.fromkeys(row["source"] for row in rows))
    found = [
        (
            name,
            [
                correlation([row for row in rows if row["source"] == source], name)
                for source in sources
            ],
        )
        for name in names
    ]
    found.sort(key=lambda each: -fmean(each[1]))
    headings = ("score", "better is", *(NAMES[source] for source in sources))
    entries = [
        (
            TableEntry(name.replace("_", " ")),
            TableEntry("higher" if name in HIGHER_IS_BETTER else "lower"),
            *(TableEntry(f"{value:+.2f}", value=value) for value in values),
        )
        for name, values in found
    ]
    return markdown(headings, entries, names=2)


def correlation(rows: list[Row], score: str) -> float:
    """Spearman's, between a score and the accuracy, median over the corruptions: 1 would choose perfectly."""
    by: dict[str, list[tuple[float, float]]] = defaultdict(list)
    sign = 1 if score in HIGHER_IS_BETTER else -1
    for row in rows:
        by[row["corruption"]].append((sign * float(row[score]), -float(row["error"])))
    return median(float(spearmanr(*zip(*pairs, strict=True)).statistic) for pairs in by.values())


def runs() -> int:
    """How many runs the correlations are over."""
    return len(rows_of("score-checks"))
