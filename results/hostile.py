"""The table of hostile streams, from its published cells: no data and no store are needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from reading import HERE
from retabling import SCALE, Published, read_cells

from fenchel.bench.record import Record
from fenchel.paper import PRESETS
from fenchel.paper.hostile import Network, hostile_table
from fenchel.paper.hostile_numbers import (
    HostileRow,
    Place,
    hostile_csv,
    hostile_layout,
    hostile_rows,
    summary,
)
from fenchel.paper.hostile_verdicts import WatchedRun, verdicts_csv, verdicts_layout, watched_runs
from fenchel.report.layout import Layout, TableEntry, to_markdown

NAME = "hostile"
CELLS = HERE / f"cells-{NAME}.csv.gz"


def hostile_tables() -> dict[str, str]:
    """The CSV files of the table, by name; none before its cells are published."""
    if not CELLS.is_file():
        return {}
    return {f"{NAME}.csv": hostile_csv(_rows()), f"{NAME}-verdicts.csv": verdicts_csv(_runs())}


def networks() -> list[str]:
    """The networks that have been run."""
    run = [row.network.title for row in _rows() if any(n.errors for n in row.numbers.values())]
    return list(dict.fromkeys(run))


def table(title: str) -> str:
    """Streams by method for one network, with goals and verdicts."""
    return _markdown(hostile_layout(_rows(), _network(title), ""))


def peers(title: str) -> str:
    """Streams by the field's methods for one network; nothing where none was run."""
    rows = [row for row in _rows() if row.network.title == title]
    columns = [column for column in hostile_table().columns if column.peer]
    if not any(
        column.name in row.numbers and row.numbers[column.name].errors
        for row in rows
        for column in columns
    ):
        return ""
    entries = tuple(
        (TableEntry(row.row.title), *(_peer(row, column.name) for column in columns))
        for row in rows
    )
    return _markdown(Layout("", ("stream", *(column.title for column in columns)), entries))


def number_of(network: str, stream: str, column: str) -> str:
    """One error, the mean over seeds, for a sentence."""
    (row,) = (r for r in _rows() if (r.network.title, r.row.title) == (network, stream))
    return f"{row.numbers[column].measured.mean:.1f}"


def verdicts() -> list[str]:
    """How many goals are met, and where the default does harm."""
    return summary(_rows())


def noticed() -> str:
    """How many runs collapsed, and of how many of them somebody was told."""
    return _markdown(verdicts_layout(_runs(), hostile_table(), ""))


def _peer(row: HostileRow, name: str) -> TableEntry:
    number = row.numbers.get(name)
    if number is None or not number.errors:
        return TableEntry("-")
    return TableEntry(number.measured.text(), "best" if number == row.best_peer else "")


def _network(title: str) -> Network:
    (found,) = (network for network in hostile_table().networks if network.title == title)
    return found


def _markdown(layout: Layout) -> str:
    """The table without the columns and rows of which nothing was run yet."""
    empty = ("", "-")
    kept = [
        place
        for place in range(len(layout.headings))
        if any(row[place].text not in empty for row in layout.rows)
    ]
    rows = tuple(
        tuple(row[place] for place in kept)
        for row in layout.rows
        if any(entry.text not in empty for entry in row[1:])
    )
    headings = tuple(layout.headings[place] for place in kept)
    return to_markdown(Layout(layout.caption, headings, rows)).rstrip() + "\n"


@cache
def _rows() -> tuple[HostileRow, ...]:
    return hostile_rows(hostile_table(), _records_of)


@cache
def _runs() -> tuple[WatchedRun, ...]:
    return watched_runs(hostile_table(), _records_of)


@cache
def _published() -> Published:
    return read_cells(CELLS)


def _records_of(place: Place) -> Sequence[Record]:
    """The published cells behind one number, one per seed."""
    published = _published()
    title, stream, column = place
    network, scale = _network(title), PRESETS[NAME].scales[SCALE]
    (row,) = (row for row in hostile_table().rows if row.title == stream)
    found = [
        record
        for key, record in published.records.items()
        if column in published.methods[key]
        and network.describes(record.cell)
        and row.describes(record.cell, scale)
    ]
    if len({record.cell.seed for record in found}) < len(found):
        raise ValueError(
            f"a number has one cell per seed; {place} has {len(found)} of them with several settings in "
            f"{CELLS.name}. Collect a store in which the table was run once."
        )
    return found
