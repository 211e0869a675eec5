"""The numbers of the table of hostile streams: errors, goals, and where the default does harm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fenchel.bench.record import Record
from fenchel.paper.hostile import DEFAULT, SOURCE, Column, HostileTable, Network, Row
from fenchel.report.layout import Layout, TableEntry, to_csv
from fenchel.report.tables import Measurement

MARGIN = 0.5
"""By how many points the default may be above the source."""

Place = tuple[str, str, str]
"""Network, row and column of a number."""


@dataclass(frozen=True)
class Number:
    """One number: a column of a row of a network. `errors` in percent, one per seed that is done."""

    network: Network
    row: Row
    column: Column
    errors: tuple[float, ...]
    failed: int
    setting: str

    @property
    def measured(self) -> Measurement:
        """The errors with their mean."""
        return Measurement(self.errors)


@dataclass(frozen=True)
class HostileRow:
    """The numbers of a row of a network, by column, and what the default should reach."""

    network: Network
    row: Row
    numbers: Mapping[str, Number]

    @property
    def goal(self) -> float | None:
        """The error that the default should not exceed, if one is set."""
        return self.row.goals.get(self.network.title)

    @property
    def best_peer(self) -> Number | None:
        """The field's method with the lowest error."""
        peers = [each for each in self.numbers.values() if each.column.peer and each.errors]
        return min(peers, key=lambda each: each.measured.mean, default=None)

    @property
    def meets_goal(self) -> bool | None:
        """Whether the default does; None where there is no goal, or no number yet."""
        default = self.numbers[DEFAULT]
        if self.goal is None or not default.errors:
            return None
        return default.measured.mean <= self.goal

    @property
    def does_harm(self) -> bool | None:
        """Whether the default is above the source by more than the margin; None where a number is missing."""
        default, source = self.numbers[DEFAULT], self.numbers[SOURCE]
        if not default.errors or not source.errors:
            return None
        common = len(
            default.errors
        )  # seeds are run in order: a source that is ahead has more of them
        return default.measured.mean > Measurement(source.errors[:common]).mean + MARGIN

    @property
    def verdict(self) -> str:
        """What the default's number means, in a few words."""
        words = []
        if self.meets_goal is not None and self.goal is not None:
            above = self.numbers[DEFAULT].measured.mean - self.goal
            missed = f"missed by {above:.1f}" if above >= 0.05 else "missed by less than 0.1"
            words.append("met" if self.meets_goal else missed)
        if self.does_harm:
            words.append(f"above source + {MARGIN}")
        return ", ".join(words)


def hostile_rows(
    table: HostileTable, records_of: Callable[[Place], Sequence[Record]]
) -> tuple[HostileRow, ...]:
    """Every row of every network, from the records of each number, failed ones among them."""
    return tuple(
        HostileRow(
            network,
            row,
            {
                column.name: _number(
                    network, row, column, records_of((network.title, row.title, column.name))
                )
                for column in table.columns_of(network, row)
            },
        )
        for network in table.networks
        for row in table.rows_of(network)
    )


def _number(network: Network, row: Row, column: Column, records: Sequence[Record]) -> Number:
    done = sorted((r for r in records if r.status == "done"), key=lambda record: record.cell.seed)
    errors = [row.error(record) for record in done]
    return Number(
        network=network,
        row=row,
        column=column,
        errors=tuple(error for error in errors if error is not None),
        failed=len(records) - len(done),
        setting=_setting(done[0]) if done else "",
    )


def _setting(record: Record) -> str:
    """Method and settings of a run, as a reader would type them."""
    cell = record.cell
    parts = [cell.method]
    if cell.optimizer is not None or cell.learning_rate is not None:
        parts.append(f"{cell.optimizer or 'default'} {cell.learning_rate or 0:g}")
    if cell.temperature not in (None, 1):
        parts.append(f"T {cell.temperature:g}")
    if cell.protect is not None:
        parts.append(f"protect {cell.protect}")
    return ", ".join(parts)


def summary(rows: Iterable[HostileRow]) -> list[str]:
    """How many goals are met, and where the default does harm."""
    found = list(rows)
    goals = [row.meets_goal for row in found if row.meets_goal is not None]
    harm = [row.does_harm for row in found if row.does_harm is not None]
    where = [f"{row.network.title}, {row.row.title}" for row in found if row.does_harm]
    return [
        f"goals met by the protected default: {sum(goals)} of {len(goals)}",
        f"above source + {MARGIN}: {sum(harm)} of {len(harm)} rows"
        + (f" ({'; '.join(where)})" if where else ""),
    ]


def hostile_layout(rows: Sequence[HostileRow], network: Network, caption: str) -> Layout:
    """Streams x methods for one network, the best of the field's methods in one column."""
    mine = [row for row in rows if row.network == network]
    names = list(dict.fromkeys(name for row in mine for name in row.numbers))
    columns = {
        name: next(row.numbers[name].column for row in mine if name in row.numbers)
        for name in names
    }
    shown = [c for c in columns.values() if not c.first_seed_alone and c.name != DEFAULT]
    peers = ["best peer"] if network.peers else []
    headings = ["stream", *(column.title for column in shown), *peers]
    headings += [columns[DEFAULT].title, "goal", "verdict"]
    entries = tuple(_entries(row, shown) for row in mine)
    return Layout(caption, tuple(headings), entries)


def _entries(row: HostileRow, shown: Sequence[Column]) -> tuple[TableEntry, ...]:
    numbers = [_entry(row.numbers.get(column.name)) for column in shown]
    if row.network.peers:
        best = row.best_peer
        text = "-" if best is None else f"{best.measured.text()} ({best.column.title})"
        numbers.append(TableEntry(text))
    default = _entry(row.numbers[DEFAULT])
    marked = TableEntry(default.text, "best" if row.meets_goal else "", default.value)
    goal = TableEntry("" if row.goal is None else f"{row.goal:.1f}")
    head = TableEntry(row.row.title, "row" if row.does_harm else "")
    return (head, *numbers, marked, goal, TableEntry(row.verdict))


def _entry(number: Number | None) -> TableEntry:
    if number is None:
        return TableEntry("")
    if number.failed and not number.errors:
        return TableEntry("failed")
    return TableEntry(number.measured.text(), value=number.measured.mean)


def hostile_csv(rows: Sequence[HostileRow]) -> str:
    """Every number in full precision, with its setting, and the goals."""
    headings = (
        "network", "stream", "column", "title", "peer", "setting", "error", "error_spread", "seeds",
        "failed_cells", "goal", "meets_goal", "does_harm",
    )  # fmt: skip
    values = []
    for row in rows:
        for name, number in row.numbers.items():
            measured = number.measured
            verdict = (row.goal, row.meets_goal, row.does_harm) if name == DEFAULT else (None,) * 3
            values.append(
                (row.network.title, row.row.title, name, number.column.title, number.column.peer,
                 number.setting, measured.mean if number.errors else None, measured.spread,
                 len(number.errors), number.failed, *verdict)
            )  # fmt: skip
    return to_csv(headings, values)
