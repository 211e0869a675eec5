"""The table of hostile streams: its rows (streams), columns (methods) and networks, read from data."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

from fenchel.bench.record import Cell, Record
from fenchel.bench.sweep import DataChoice, MethodChoice, StreamChoice
from fenchel.data.bursts import parse_bursts
from fenchel.data.settings import BURSTS
from fenchel.methods import moves_parameters
from fenchel.paper.preset import Scale, SourceModel
from fenchel.paper.streaming import LineStream

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DATA = "cifar10-c"
"""What is streamed, unless a row says otherwise."""
SOURCE, DEFAULT = "source", "default"
"""The columns that are compared: the network as it is, and what is to do no harm to it."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """A source network of the table.

    Attributes:
        model: what it was trained on, with which loss.
        exact: whether no other architecture may take its place.
        peers: whether the field's methods run on it.
        tuned_as: the network of the zoo whose tuned settings it has, where there are none of its own.
        rows: the titles of its rows; all where there are none.
        without: columns that make no sense for it.
    """

    title: str
    model: SourceModel
    exact: bool = False
    peers: bool = False
    tuned_as: str | None = None
    rows: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def describes(self, cell: Cell) -> bool:
        """Whether a cell is a run of this network."""
        own = cell.architecture in self.model.architectures
        return own and self.model.matches(self.model.data, cell.loss)


@dataclass(frozen=True, kw_only=True)
class Column:
    """A method with its settings.

    Attributes:
        name: `default`; what `--column` takes, and what a cell is asked for by.
        title: `protected default`.
        method: the method, or its spec.
        settings: of `fenchel.adapt`.
        tuned: the method whose tuned settings it has.
        rate_of: the method whose tuned settings it has in a row that multiplies rates, if it has none
            otherwise.
        peer: whether it is one of the field's methods.
        watched: whether it is there to see if its harm is noticed, and not for its error.
        times: by what its tuned learning rate is multiplied.
    """

    name: str
    title: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    tuned: str | None = None
    rate_of: str | None = None
    peer: bool = False
    watched: bool = False
    times: float = 1.0

    @property
    def first_seed_alone(self) -> bool:
        """Whether it runs with the first seed and no other."""
        return self.peer or self.watched

    def tuned_in(self, row: Row) -> str | None:
        """The method whose tuned settings it has in a row; None for its own settings."""
        return self.tuned or (self.rate_of if row.rate != 1 else None)

    def runs_in(self, row: Row) -> bool:
        """Whether there is a number: a fixed rate is not multiplied."""
        fixed = self.tuned_in(row) is None and moves_parameters(self.method.partition(":")[0])
        return row.rate == 1 or not (fixed or self.watched)

    def choice(self, row: Row, tuned: Mapping[str, Any]) -> MethodChoice:
        """The method as a sweep takes it, in a row, with the settings that a tuning chose."""
        settings = {**self.settings, **(tuned if self.tuned_in(row) else {})}
        if "learning_rate" in settings:
            settings["learning_rate"] *= row.rate * self.times
        grid = {name: [value] for name, value in settings.items()}
        return MethodChoice(name=self.method, grid=grid, title=self.name)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A stream.

    Attributes:
        stream: its protocol, corruptions and length.
        goals: the error that the default should not exceed, by network.
        rate: by what tuned learning rates are multiplied.
        scored: all images, or those after the first batch that shows nothing.
    """

    stream: LineStream
    goals: Mapping[str, float] = field(default_factory=dict)
    rate: float = 1.0
    scored: Literal["all", "after"] = "all"

    @property
    def title(self) -> str:
        """`continual`, `batch size 1`."""
        return self.stream.title

    def data(self, scale: Scale) -> DataChoice:
        """What is streamed, at a scale."""
        return DataChoice(
            name=self.stream.data or DATA,
            corruptions=self.stream.corruptions,
            limit=self.stream.limit(scale.limit),
        )

    def choice(self, scale: Scale) -> StreamChoice:
        """How it is streamed, at a scale."""
        return self.stream.choice(scale.batch_size)

    def describes(self, cell: Cell, scale: Scale) -> bool:
        """Whether a cell is a run on this stream, at a scale."""
        data, stream = self.data(scale), self.choice(scale)
        corruptions = tuple(shift.name for shift in cell.shifts if shift.severity is not None)
        wanted = {
            "data": data.name,
            "limit": data.limit,
            "setting": stream.setting,
            "order": stream.order,
            "batch_size": stream.batch_size,
            "rounds": stream.rounds if stream.setting == "recurring" else None,
            "bursts": str(parse_bursts(stream.bursts)) if stream.setting == BURSTS else None,
        }
        same = all(getattr(cell, name) == value for name, value in wanted.items())
        return same and corruptions == data.corruption_names

    def error(self, record: Record) -> float | None:
        """The error of a run in percent, over the images that are scored; None if there are none."""
        if self.scored == "all":
            return record.error_percent
        if 0 not in record.batch_sizes:
            return None
        first = record.batch_sizes.index(0)
        wrong, images = sum(record.batch_wrong[first:]), sum(record.batch_sizes[first:])
        return 100 * wrong / images if images else None


@dataclass(frozen=True, kw_only=True)
class HostileTable:
    """Rows x columns, for every network."""

    networks: tuple[Network, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    untuned: Mapping[str, Any]
    """The settings of a network for which none were tuned."""

    def rows_of(self, network: Network) -> tuple[Row, ...]:
        """The rows of one network."""
        return tuple(row for row in self.rows if not network.rows or row.title in network.rows)

    def columns_of(self, network: Network, row: Row) -> tuple[Column, ...]:
        """The columns of one row of one network."""
        return tuple(
            column
            for column in self.columns
            if column.name not in network.without
            and (network.peers or not column.peer)
            and column.runs_in(row)
        )


def read_hostile(text: str) -> HostileTable:
    """The table that a TOML file describes."""
    values = tomllib.loads(text)
    return HostileTable(
        networks=tuple(_network(title, dict(facts)) for title, facts in values["networks"].items()),
        columns=tuple(Column(**{"title": facts["name"], **facts}) for facts in values["columns"]),
        rows=tuple(_row(dict(facts)) for facts in values["rows"]),
        untuned=values["untuned"],
    )


def _network(title: str, facts: dict[str, Any]) -> Network:
    model = SourceModel(
        data=facts.pop("data"),
        loss=facts.pop("loss"),
        architectures=tuple(facts.pop("architectures")),
    )
    own: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in facts.items()
    }
    return Network(title=title, model=model, **own)


def _row(facts: dict[str, Any]) -> Row:
    own = {name: facts.pop(name) for name in ("goals", "rate", "scored") if name in facts}
    return Row(stream=LineStream.of(facts), **own)


def hostile_table() -> HostileTable:
    """The table of this library."""
    file = files("fenchel.paper") / "tables" / "hostile.toml"
    return read_hostile(file.read_text(encoding="utf-8"))
