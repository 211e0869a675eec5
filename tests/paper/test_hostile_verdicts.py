"""Hostile runs that were watched: which of them did harm, and of which somebody was told."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from fenchel.adapters.harm import HarmWarning
from fenchel.bench.record import Cell, Record
from fenchel.paper.hostile import hostile_table
from fenchel.paper.hostile_verdicts import (
    first_alarm,
    verdicts_csv,
    verdicts_layout,
    watched_runs,
    worst_part,
)

CELL = Cell(data="d", shifts=(), architecture="a", loss="l", model_digest="m", method="bn")
Place = tuple[str, str, str]


def run(wrong: Sequence[int], alarms: Sequence[int] = ()) -> Record:
    """Eight batches of 100 images, with so many wrong in each, and alarms at these batches."""
    said = [str(HarmWarning("suspect", "for a test", batch, "")) for batch in alarms]
    return Record(
        cell=CELL,
        status="done",
        samples=800,
        wrong=sum(wrong),
        batch_sizes=(100,) * 8,
        batch_wrong=tuple(wrong),
        warnings=("another warning", *said),
    )


def records(**columns: Record) -> Callable[[Place], list[Record]]:
    named = {name.replace("_", "-"): record for name, record in columns.items()}

    def of(place: Place) -> list[Record]:
        network, row, column = place
        there = (network, row) == ("cross-entropy", "sorted") and column in named
        return [named[column]] if there else []

    return of


def test_the_worst_quarter_counts() -> None:
    late = run([30] * 6 + [60, 50])
    assert worst_part(late, run([40] * 8)) == pytest.approx(15.0)
    assert worst_part(run([40] * 8), late) == pytest.approx(10.0)


def test_runs_on_two_streams_are_not_compared() -> None:
    with pytest.raises(ValueError, match="one stream"):
        worst_part(run([1] * 8), Record(cell=CELL, status="done", batch_sizes=(100,)))


def test_the_first_alarm_is_read_from_the_warnings() -> None:
    assert first_alarm(run([0] * 8, alarms=(5, 3))) == 3
    assert first_alarm(run([0] * 8)) is None


@pytest.mark.parametrize(
    ("wrong", "alarms", "outcome", "missed", "false_alarm"),
    [
        ([30] * 6 + [60] * 2, (), "collapsed", True, False),
        ([30] * 6 + [60] * 2, (7,), "collapsed", False, False),
        ([30] * 6 + [45] * 2, (), "worse than no updates", False, False),
        ([30] * 8, (), "healthy", False, False),
        ([30] * 8, (2,), "healthy", False, True),
    ],
)
def test_collapse_and_health_are_told_apart(
    wrong: list[int], alarms: tuple[int, ...], outcome: str, missed: bool, false_alarm: bool
) -> None:
    of = records(source=run([50] * 8), bn=run([40] * 8), watch_10=run(wrong, alarms))
    (found,) = watched_runs(hostile_table(), of)
    assert (found.column, found.outcome) == ("watch-10", outcome)
    assert (found.missed, found.false_alarm) == (missed, false_alarm)
    assert verdicts_csv([found]).splitlines()[1].startswith("cross-entropy,sorted,watch-10,0,")


def test_the_table_counts_runs_by_column() -> None:
    of = records(
        source=run([50] * 8),
        bn=run([40] * 8),
        default=run([30] * 8, (1,)),
        watch_1=run([30] * 8),
        watch_1000=run([90] * 8),
    )
    table = hostile_table()
    layout = verdicts_layout(watched_runs(table, of), table, "")
    counts = {row[0].text: [entry.text for entry in row[1:]] for row in layout.rows}
    assert counts["protected default"] == ["0", "0", "1", "1", "0", "0"]
    assert counts["watched, rate x 1000"] == ["1", "1", "0", "0", "0", "0"]
    assert counts["all"] == ["1", "1", "2", "1", "0", "0"]


def test_without_the_source_there_is_nothing_to_judge_by() -> None:
    assert watched_runs(hostile_table(), records(watch_1=run([30] * 8))) == ()


def test_watched_rates_are_multiples_of_the_tuned_one() -> None:
    table = hostile_table()
    (row,) = (row for row in table.rows if row.title == "continual")
    watched = [column for column in table.columns if column.watched]
    rates = [
        column.choice(row, {"learning_rate": 0.01}).grid["learning_rate"] for column in watched
    ]
    assert rates == [[0.01], [0.1], [1.0], [10.0]]
    assert all(column.choice(row, {}).grid["protect"] == ["watch"] for column in watched)
    (multiplied,) = (row for row in table.rows if row.rate != 1)
    assert not any(column.runs_in(multiplied) for column in watched)
