"""Turn a sweep into jobs: every combination once, in an order that lets workers reuse what they opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fenchel.adapters import METHODS
from fenchel.bench.canonical import ADAPTATION_DEFAULTS, canonical_settings
from fenchel.bench.record import Cell, CellShift
from fenchel.bench.sources import (
    Job,
    ShiftSource,
    opened_checkpoint,
    opened_shift,
    shift_sources,
    written_at,
)
from fenchel.bench.sweep import DataChoice, MethodChoice, Sweep
from fenchel.bench.tuned import Tuned, read_tuned
from fenchel.data import DATASETS
from fenchel.data.corruptions import CORRUPTIONS
from fenchel.data.stream import Shift, Stream
from fenchel.losses import LOSSES, parse
from fenchel.models import MODELS, Checkpoint
from fenchel.models.places import resolve
from fenchel.names import Registry, parse_spec
from fenchel.plugins import loaded_plugins

GIVEN = "given"
"""How hyper-parameters were chosen, unless a file of `fenchel tune` says otherwise."""


@dataclass(frozen=True)
class Request:
    """The name that a sweep uses for a cell, and how its hyper-parameters were chosen."""

    key: str
    method: str
    selection: str = GIVEN


@dataclass(frozen=True)
class Plan:
    """Jobs without repetition, and every name that the sweep uses for a cell."""

    jobs: tuple[Job, ...]
    requests: tuple[Request, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the cells, in the order they will be run."""
        return tuple(job.cell.key for job in self.jobs)


@dataclass(frozen=True)
class _Source:
    path: Path
    name: str
    checkpoint: Checkpoint
    digest: str


@dataclass(frozen=True)
class _Configuration:
    """One configuration for one model: the fields of the cell, and the name that the sweep gave it."""

    name: str
    selection: str
    fields: dict[str, Any]


def make_plan(sweep: Sweep, *, limit: int | None = None, device: str = "cpu") -> Plan:
    """The jobs of a sweep; `limit` images per shift instead of the sweep's own limit.

    Opens every checkpoint and data set, so whatever is missing is reported before anything runs.
    """
    plugins = loaded_plugins()
    jobs: dict[str, Job] = {}
    requests: dict[Request, None] = {}
    sources = [_open_source(name, sweep.folder, device) for name in sweep.checkpoints]
    tuned = _read_all_tuned(sweep.methods)
    configurations = [list(_configurations(sweep, source, tuned)) for source in sources]
    for data in sweep.data:
        data = data if limit is None else replace(data, limit=limit)
        for shifts in _streams(data, sweep.stream.setting):
            for source, its_configurations in zip(sources, configurations, strict=True):
                _check_fit(source, data, shifts)
                for seed in sweep.seeds:
                    base, samples = _base(sweep, data, shifts, source, seed)
                    for configuration in its_configurations:
                        cell = Cell(**base, **configuration.fields)
                        cell = replace(cell, plugins=_plugins_of(cell))
                        job = Job(cell, str(source.path), shifts, samples, device, plugins)
                        jobs.setdefault(cell.key, job)
                        requests.setdefault(
                            Request(cell.key, configuration.name, configuration.selection)
                        )
    return Plan(tuple(jobs.values()), tuple(requests))


def _open_source(name: str, folder: Path, device: str) -> _Source:
    path = resolve(name, folder)
    checkpoint, digest = opened_checkpoint(str(path), device, written_at(path))
    return _Source(path, name, checkpoint, digest)


def _read_all_tuned(methods: Sequence[MethodChoice]) -> dict[str, Tuned]:
    return {choice.tuned: read_tuned(choice.tuned) for choice in methods if choice.tuned}


def _configurations(
    sweep: Sweep, source: _Source, tuned: dict[str, Tuned]
) -> Iterator[_Configuration]:
    """Every method at every point of its grid."""
    loss = parse(source.checkpoint.loss_spec)
    defaults = {
        name: getattr(sweep.stream, name)
        for name in ADAPTATION_DEFAULTS
        if hasattr(sweep.stream, name)
    }
    for choice in sweep.methods:
        selection, chosen = GIVEN, {}
        if choice.tuned is not None:
            found = tuned[choice.tuned]
            chosen = found.settings_for(
                source.checkpoint.metadata.architecture, source.checkpoint.loss_spec, choice.name
            )
            selection = found.selection
        for settings in choice.settings():
            fields = canonical_settings(
                choice.method,
                {**defaults, **chosen, **settings},
                loss,
                source.checkpoint.preprocessing,
            )
            yield _Configuration(choice.name, selection, fields)


def _streams(data: DataChoice, setting: str) -> Iterator[tuple[ShiftSource, ...]]:
    """One stream per shift where the adapter is reset between shifts; else one stream over all of them."""
    sources = shift_sources(data)
    if setting == "reset":
        yield from ((source,) for source in sources)
    else:
        yield sources


def _base(
    sweep: Sweep, data: DataChoice, sources: tuple[ShiftSource, ...], source: _Source, seed: int
) -> tuple[dict[str, Any], int]:
    """The fields of a cell that describe its stream and its model, and the number of samples."""
    shifts = tuple(opened_shift(item) for item in sources)
    longest = max(len(shift.dataset) for shift in shifts)
    limit = None if data.limit is None or data.limit >= longest else data.limit
    dirichlet = sweep.stream.order == "dirichlet"
    stream = Stream(
        shifts=shifts,
        setting=sweep.stream.setting,
        order=sweep.stream.order,
        batch_size=sweep.stream.batch_size,
        seed=seed,
        limit=limit,
        concentration=sweep.stream.concentration,
        rounds=sweep.stream.rounds,
    )
    fields = {
        "data": data.name,
        "shifts": tuple(_facts(shift) for shift in shifts),
        "metric": shifts[0].dataset.metric,
        "setting": sweep.stream.setting,
        "rounds": sweep.stream.rounds if sweep.stream.setting == "recurring" else None,
        "order": sweep.stream.order,
        "concentration": sweep.stream.concentration if dirichlet else None,
        "batch_size": sweep.stream.batch_size,
        "limit": limit,
        "seed": seed,
        "architecture": source.checkpoint.metadata.architecture,
        "loss": source.checkpoint.loss_spec,
        "model_digest": source.digest,
        "checkpoint": source.name,
    }
    return fields, stream.samples


def _plugins_of(cell: Cell) -> dict[str, str]:
    """The plugin files without which there would be no such cell, with their digests."""
    names: list[tuple[Registry[Any], str]] = [
        (METHODS, cell.method),
        (LOSSES, parse_spec(cell.loss)[0]),
        (DATASETS, parse_spec(cell.data)[0]),
        (MODELS, cell.architecture),
        *((CORRUPTIONS, shift.name) for shift in cell.shifts),
    ]
    found = (registry.plugin_of(name) for registry, name in names)
    return {plugin.name: plugin.digest for plugin in found if plugin is not None}


def _facts(shift: Shift) -> CellShift:
    return CellShift(**shift.record())


def _check_fit(source: _Source, data: DataChoice, sources: tuple[ShiftSource, ...]) -> None:
    """Refuse a model that cannot predict the classes of the data."""
    classes = opened_shift(sources[0]).dataset.classes
    if len(source.checkpoint.classes) != len(classes):
        raise ValueError(
            f"model and data must agree in the number of classes; {source.name} has "
            f"{len(source.checkpoint.classes)}, {data.name} has {len(classes)}. Leave one of them out "
            "of the sweep."
        )
