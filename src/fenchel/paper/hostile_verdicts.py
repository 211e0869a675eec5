"""Whether the monitor tells the hostile runs that did harm from those that did not."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from fenchel.bench.record import Record
from fenchel.paper.hostile import DEFAULT, SOURCE, HostileTable
from fenchel.paper.hostile_numbers import Place
from fenchel.report.layout import Layout, TableEntry, to_csv

STATISTICS_ALONE = "bn"
"""The column without updates: what a run is compared with besides the source."""
HARM = 2.0
"""Points above another column that are no chance."""
PARTS = 4
"""A run is judged part by part: one that is good at first may collapse later."""

Outcome = Literal["collapsed", "worse than no updates", "healthy"]

_ALARM = re.compile(r"(?:suspect|collapsed) at batch (\d+): ")


@dataclass(frozen=True)
class WatchedRun:
    """What a run did, and whether anything was said about it.

    Attributes:
        above_source: points of error above the source's, in the worst part of the stream.
        above_statistics: the same above batch statistics without updates; None where there is no such run.
        alarm: the batch of the first alarm; None for none.
    """

    network: str
    row: str
    column: str
    seed: int
    above_source: float
    above_statistics: float | None
    alarm: int | None

    @property
    def outcome(self) -> Outcome:
        """Collapsed: some part is worse than the source. Healthy: none is worse than that or no updates."""
        if self.above_source > HARM:
            return "collapsed"
        if self.above_statistics is not None and self.above_statistics > HARM:
            return "worse than no updates"
        return "healthy"

    @property
    def missed(self) -> bool:
        """A collapse that nobody was told of."""
        return self.outcome == "collapsed" and self.alarm is None

    @property
    def false_alarm(self) -> bool:
        """An alarm where nothing was wrong."""
        return self.outcome == "healthy" and self.alarm is not None


def watched_runs(
    table: HostileTable, records_of: Callable[[Place], Sequence[Record]]
) -> tuple[WatchedRun, ...]:
    """Every run that was watched, the protected ones among them, of whose row the source was run, too."""
    runs = []
    for network in table.networks:
        for row in table.rows_of(network):
            place = (network.title, row.title)
            sources = _by_seed(records_of((*place, SOURCE)))
            unmoved = _by_seed(records_of((*place, STATISTICS_ALONE)))
            for column in table.columns_of(network, row):
                if column.watched or column.name == DEFAULT:
                    for seed, record in _by_seed(records_of((*place, column.name))).items():
                        if seed in sources:
                            above = worst_part(record, sources[seed])
                            beside = unmoved.get(seed)
                            runs.append(
                                WatchedRun(
                                    *place,
                                    column.name,
                                    seed,
                                    above,
                                    None if beside is None else worst_part(record, beside),
                                    first_alarm(record),
                                )
                            )
    return tuple(runs)


def worst_part(run: Record, other: Record) -> float:
    """By how many points a run is above another on the same stream, in the worst part of it."""
    sizes = run.batch_sizes
    if sizes != other.batch_sizes or run.order_digest != other.order_digest:
        raise ValueError(
            f"two runs are compared on one stream; got {run.cell.key} and {other.cell.key}, whose batches "
            "differ. Collect both from one store."
        )
    edges = [len(sizes) * part // PARTS for part in range(PARTS + 1)]
    apart = [
        100 * (sum(run.batch_wrong[a:b]) - sum(other.batch_wrong[a:b])) / sum(sizes[a:b])
        for a, b in pairwise(edges)
        if sum(sizes[a:b])
    ]
    return max(apart, default=0.0)


def first_alarm(record: Record) -> int | None:
    """The batch at which a run's verdict first left `healthy`."""
    found = [_ALARM.match(text) for text in record.warnings]
    return min((int(match[1]) for match in found if match), default=None)


def _by_seed(records: Sequence[Record]) -> dict[int, Record]:
    return {record.cell.seed: record for record in records if record.status == "done"}


def verdicts_layout(runs: Sequence[WatchedRun], table: HostileTable, caption: str) -> Layout:
    """One row per watched column: how many runs collapsed, and what was said."""
    rows = []
    for column in table.columns:
        mine = [run for run in runs if run.column == column.name]
        if mine:
            rows.append(_entries(column.title, mine))
    if len(rows) > 1:
        rows.append(_entries("all", list(runs)))
    headings = (
        "runs of",
        "collapsed",
        "missed",
        "healthy",
        "false alarms",
        "in between",
        "noticed",
    )
    return Layout(caption, headings, tuple(rows))


def _entries(title: str, runs: Sequence[WatchedRun]) -> tuple[TableEntry, ...]:
    def count(outcome: Outcome) -> list[WatchedRun]:
        return [run for run in runs if run.outcome == outcome]

    between = count("worse than no updates")
    numbers = (
        len(count("collapsed")),
        sum(run.missed for run in runs),
        len(count("healthy")),
        sum(run.false_alarm for run in runs),
        len(between),
        sum(run.alarm is not None for run in between),
    )
    return (TableEntry(title), *(TableEntry(str(number), value=number) for number in numbers))


def verdicts_csv(runs: Sequence[WatchedRun]) -> str:
    """One row per run."""
    headings = (
        "network", "stream", "column", "seed", "above_source", "above_statistics", "first_alarm",
        "outcome", "missed", "false_alarm",
    )  # fmt: skip
    return to_csv(
        headings,
        [
            (run.network, run.row, run.column, run.seed, run.above_source, run.above_statistics,
             run.alarm, run.outcome, run.missed, run.false_alarm)
            for run in runs
        ],
    )  # fmt: skip
