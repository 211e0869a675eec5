"""Which cells of the table of hostile streams can be run here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from fenchel.bench.plan import Plan, make_plan
from fenchel.bench.sources import ShiftSource, streams_of
from fenchel.bench.sweep import Sweep
from fenchel.bench.tuned import read_tuned
from fenchel.models import zoo
from fenchel.names import unknown
from fenchel.paper.hostile import Column, HostileTable, Network, Row
from fenchel.paper.planning import (
    EMPTY,
    FoundCheckpoint,
    LinePlan,
    Missing,
    PresetPlan,
    can_open_shift,
    find_checkpoints,
    missing_checkpoint,
    missing_data,
)
from fenchel.paper.preset import Line, Preset, Scale

TUNED = "streams"
"""The tuning whose settings are taken: `NAME.streams.json` beside a checkpoint."""


@dataclass(frozen=True)
class RowPlan:
    """A row of a network: its columns and, in `line`, their cells, asked for by the names of the columns."""

    network: Network
    row: Row
    columns: tuple[Column, ...]
    line: LinePlan


@dataclass(frozen=True)
class HostilePlan:
    """What can be run of the table at a scale.

    untuned: the networks that are here, but for which no settings were tuned.
    """

    table: HostileTable
    whole: PresetPlan
    rows: tuple[RowPlan, ...]
    untuned: tuple[str, ...]

    def plan(self, columns: Sequence[str] = (), rows: Sequence[str] = ()) -> Plan:
        """The cells of some columns and rows, of all where none is named.

        Seed by seed; the peers and the watched columns come behind the others.
        """
        known = {column.name: column for column in self.table.columns}
        _require("column", columns, list(known))
        _require("row", rows, [row.title for row in self.table.rows])
        chosen = [row.line.plan for row in self.rows if not rows or row.row.title in rows]
        requests = dict.fromkeys(
            request
            for plan in chosen
            for request in plan.requests
            if not columns or request.method in columns
        )
        wanted = {request.key for request in requests}
        main = {request.key for request in requests if not known[request.method].first_seed_alone}
        jobs = {job.cell.key: job for plan in chosen for job in plan.jobs if job.cell.key in wanted}
        ordered = sorted(jobs.values(), key=lambda job: (job.cell.seed, job.cell.key not in main))
        return Plan(tuple(ordered), tuple(requests))

    def keys_of(self, place: tuple[str, str, str]) -> list[str]:
        """The keys of the cells behind one number: a network, a row and a column."""
        network, title, column = place
        (found,) = (r for r in self.rows if (r.network.title, r.row.title) == (network, title))
        return [name.key for name in found.line.plan.requests if name.method == column]


def _require(kind: str, given: Sequence[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise unknown(kind, name, known)


def plan_hostile(
    table: HostileTable,
    preset: Preset,
    scale: str,
    checkpoints: Sequence[FoundCheckpoint],
    *,
    device: str = "cpu",
) -> HostilePlan:
    """The cells for which network and data are here."""
    found = {network.title: _choose(network, table, checkpoints) for network in table.networks}
    planner = _Planner(table, preset.scales[scale], found, cache(can_open_shift), device)
    rows = tuple(
        planner.row_plan(network, row, table.columns_of(network, row))
        for network in table.networks
        for row in table.rows_of(network)
    )
    untuned = tuple(
        network.title
        for network in table.networks
        if found[network.title] and planner.settings_of(network) is None
    )
    whole = PresetPlan(preset, scale, tuple(row.line for row in rows))
    return HostilePlan(table, whole, rows, untuned)


def _choose(
    network: Network, table: HostileTable, checkpoints: Sequence[FoundCheckpoint]
) -> FoundCheckpoint | None:
    """The checkpoint of a network: its own architecture, or else one that no other network has."""
    own = network.model.architectures
    taken = {name for other in table.networks for name in other.model.architectures} - set(own)
    matching = [
        found
        for found in checkpoints
        if network.model.matches(found.metadata.data, found.metadata.loss)
        and found.metadata.architecture not in taken
        and (found.metadata.architecture in own or not network.exact)
    ]
    return min(matching, key=lambda found: found.metadata.architecture not in own, default=None)


Settings = Callable[[str], Mapping[str, Any]]
"""From a method to the settings that were tuned for it."""


@dataclass(frozen=True)
class _Planner:
    """Plans row by row; `found` has the checkpoint of every network that is here."""

    table: HostileTable
    scale: Scale
    found: Mapping[str, FoundCheckpoint | None]
    can_open: Callable[[ShiftSource], bool]
    device: str

    def row_plan(self, network: Network, row: Row, columns: tuple[Column, ...]) -> RowPlan:
        """The cells of a row, and what is not here."""
        checkpoint = self.found[network.title]
        missing = [] if checkpoint else [missing_checkpoint(network.model, self.scale)]
        missing += self._missing_data(row)
        plan = EMPTY
        if checkpoint and not missing:
            plans = [
                make_plan(sweep, device=self.device)
                for sweep in self._sweeps(network, row, columns, checkpoint)
            ]
            plan = Plan(
                tuple(job for each in plans for job in each.jobs),
                tuple(request for each in plans for request in each.requests),
            )
        line = Line(
            title=f"{network.title}, {row.title}",
            data=row.data(self.scale).name,
            source=network.model,
            runs={},
            stream=row.stream,
        )
        runs = LinePlan(line, self.scale, plan, checkpoint, int(not missing), 1, tuple(missing))
        return RowPlan(network, row, columns, runs)

    def settings_of(self, network: Network) -> Settings | None:
        """Those tuned for a network, or for the one whose settings it has; None if there are none."""
        own = self.found[network.title]
        stand_in = [zoo.path_of(name)] if (name := network.tuned_as) in zoo.names() else []
        for checkpoint in (*((own,) if own else ()), *find_checkpoints(stand_in)):
            if file := checkpoint.tuned(TUNED):
                metadata = checkpoint.metadata
                return partial(read_tuned(file).settings_for, metadata.architecture, metadata.loss)
        return None

    def _missing_data(self, row: Row) -> list[Missing]:
        """A stream is whole or it is another one."""
        wanted: dict[str, list[bool]] = {}
        for stream in streams_of(row.data(self.scale), row.choice(self.scale).setting):
            for shift in stream:
                wanted.setdefault(shift.data.name, []).append(self.can_open(shift))
        return [
            missing_data(name, present.count(False), len(present))
            for name, present in wanted.items()
            if not all(present)
        ]

    def _sweeps(
        self,
        network: Network,
        row: Row,
        columns: Sequence[Column],
        checkpoint: FoundCheckpoint,
    ) -> Iterator[Sweep]:
        """One sweep of the columns that have every seed, and one of the others."""
        settings = self.settings_of(network)
        for first_alone, seeds in ((False, self.scale.seeds), (True, self.scale.seeds[:1])):
            methods = []
            for column in columns:
                if column.first_seed_alone == first_alone:
                    name = column.tuned_in(row)
                    tuned = settings(name) if settings and name else self.table.untuned
                    methods.append(column.choice(row, tuned))
            if methods:
                yield Sweep(
                    data=[row.data(self.scale)],
                    checkpoints=[zoo.address(checkpoint.path)],
                    methods=methods,
                    seeds=seeds,
                    stream=row.choice(self.scale),
                )
