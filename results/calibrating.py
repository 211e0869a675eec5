"""What settings without labels cost, and which score without labels could choose a rate, as tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from statistics import fmean, median

from reading import Row, rows_of
from scipy.stats import spearmanr
from tables import markdown

from fenchel.report.layout import TableEntry

NAMES = {"ce": "cross-entropy", "poly": "PolyLoss", "squared": "squared loss"}
OTHERS = {"groupnorm": "GroupNorm, CIFAR-10-C", "svhn": "SVHN"}
"""Networks and targets of other kinds: does any way of choosing settings collapse there?"""
TUNED, ALONE = "tuned on validation corruptions", "batch statistics alone"
HIGHER_IS_BETTER = (
    "marginal_entropy", "mutual_information", "agreement_with_source", "agreement_with_the_rate_below",
    "consistency_when_mirrored", "neighbourhood_density",
)  # fmt: skip
SIDE_BY_SIDE = (0.25, 1.0, 4.0)
"""The multiples of its rate among which `learning_rate="auto"` chooses."""
_KNOWN = ("source", "method", "corruption", "learning_rate", "temperature", "images", "error")


Place = tuple[str, str]
"""A corruption and a seed."""
Errors = dict[Place, float]


def measured(*sources: str) -> dict[tuple[str, str], Errors]:
    """The error at each corruption and seed, by source and settings; seeds that ran on all corruptions."""
    rows = [row for source in sources for row in rows_of(f"settings-checks-{source}")]
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
    by = measured(*NAMES)
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


def others() -> str:
    """The mean error on other networks and targets: corruptions together, data sets one by one."""
    columns: dict[str, dict[str, float]] = {}
    ways: list[str] = []
    for source, title in OTHERS.items():
        for (_, way), errors in measured(source).items():
            targets = {place[0] for place in errors}
            groups = (
                {title: targets} if len(targets) > 3 else {f"{title} to {t}": {t} for t in targets}
            )
            for column, members in sorted(groups.items()):
                mine = [error for place, error in errors.items() if place[0] in members]
                columns.setdefault(column, {})[way] = fmean(mine)
            ways += [way] * (way not in ways)
    rows = [
        (
            TableEntry(way),
            *(
                TableEntry(f"{found[way]:.2f}", value=found[way])
                if way in found
                else TableEntry("-")
                for found in columns.values()
            ),
        )
        for way in ways
    ]
    return markdown(["settings", *columns], rows)


def protocol() -> str:
    """How many streams of how many images the table stands for, in words."""
    rows = [row for source in NAMES for row in rows_of(f"settings-checks-{source}")]
    images, shifts = {row["images"] for row in rows}, {row["corruption"] for row in rows}
    by = measured(*NAMES)
    seeds = [
        f"{len({seed for _, seed in by[source, TUNED]})} for {name}"
        for source, name in NAMES.items()
        if (source, TUNED) in by
    ]
    return f"{len(shifts)} corruptions, {'/'.join(sorted(images))} images each, seeds: {', '.join(seeds)}"


def scores() -> str:
    """The rank correlation of every score with the accuracy, by source: the bare step as it is tuned."""
    rows = [row for row in rows_of("score-checks") if row["method"] == "conjugate"]
    return _by_score(rows, correlation, "+.2f", ascending=False)


def chosen_rates() -> str:
    """The error of the default at the rate that every score chooses, by source, and without choosing."""
    rows = [
        row
        for row in rows_of("score-checks")
        if row["method"] == "default" and float(row["learning_rate"]) in SIDE_BY_SIDE
    ]
    usual = [row for row in rows if float(row["learning_rate"]) == 1]
    return _by_score(
        rows, error_of_choice, ".2f", ascending=True, first=("none: the usual rate", usual)
    )


def _by_score(
    rows: list[Row],
    value_of: Callable[[list[Row], str], float],
    digits: str,
    ascending: bool,
    first: tuple[str, list[Row]] | None = None,
) -> str:
    names = [name for name in rows[0] if name not in _KNOWN] if rows else []
    sources = list(dict.fromkeys(row["source"] for row in rows))
    found = [
        (name, [value_of([row for row in rows if row["source"] == s], name) for s in sources])
        for name in names
    ]
    found.sort(key=lambda each: fmean(each[1]) if ascending else -fmean(each[1]))

    def line(title: str, better: str, values: list[float]) -> tuple[TableEntry, ...]:
        numbers = (TableEntry(f"{value:{digits}}", value=value) for value in values)
        return TableEntry(title), TableEntry(better), *numbers

    entries = [
        line(name.replace("_", " "), "higher" if name in HIGHER_IS_BETTER else "lower", values)
        for name, values in found
    ]
    if first is not None:
        title, fixed = first
        means = [fmean(float(row["error"]) for row in fixed if row["source"] == s) for s in sources]
        entries.insert(0, line(title, "", means))
    return markdown(("score", "better is", *(NAMES[s] for s in sources)), entries, names=2)


def error_of_choice(rows: list[Row], score: str) -> float:
    """The mean error over the corruptions, of the run that the score takes for the best of each."""
    sign = 1 if score in HIGHER_IS_BETTER else -1
    by: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by[row["corruption"]].append(row)
    return fmean(
        float(max(runs, key=lambda row: sign * float(row[score]))["error"]) for runs in by.values()
    )


def correlation(rows: list[Row], score: str) -> float:
    """Spearman's, between a score and the accuracy, median over the corruptions: 1 would choose perfectly."""
    by: dict[str, list[tuple[float, float]]] = defaultdict(list)
    sign = 1 if score in HIGHER_IS_BETTER else -1
    for row in rows:
        by[row["corruption"]].append((sign * float(row[score]), -float(row["error"])))
    return median(float(spearmanr(*zip(*pairs, strict=True)).statistic) for pairs in by.values())


def runs() -> int:
    """How many runs the correlations are over."""
    return sum(row["method"] == "conjugate" for row in rows_of("score-checks"))
