"""Turn a sweep into jobs: every combination once, in an order that lets workers reuse what they opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fenchel.adapters import METHODS, Scores
from fenchel.bench.canonical import ADAPTATION_DEFAULTS, canonical_settings
from fenchel.bench.record import Cell, CellShift
from fenchel.bench.sources import (
    Job,
    ModelSource,
    ShiftSource,
    opened_model,
    opened_shift,
    streams_of,
)
from fenchel.bench.sweep import DataChoice, MethodChoice, ModelChoice, Sweep
from fenchel.bench.tuned import Tuned, read_tuned
from fenchel.data import DATASETS
from fenchel.data.bursts import parse_bursts
from fenchel.data.corruptions import CORRUPTIONS
from fenchel.data.settings import BURSTS
from fenchel.data.stream import Shift, Stream
from fenchel.losses import LOSSES, Loss, open_loss
from fenchel.models import MODELS, Checkpoint
from fenchel.names import Registry, parse_spec
from fenchel.own_code import label_of
from fenchel.plugins import loaded_plugins
from fenchel.train.outputs import first_images, logits_of

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
    cautions: tuple[str, ...] = ()
    """What its user should know of the models."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the cells, in the order they will be run."""
        return tuple(job.cell.key for job in self.jobs)


@dataclass(frozen=True)
class _Source:
    choice: ModelChoice
    opened_from: ModelSource
    checkpoint: Checkpoint
    digest: str
    loss: Loss

    @property
    def loss_label(self) -> str:
        return label_of(self.checkpoint.loss_spec)


@dataclass(frozen=True)
class _Configuration:
    """One configuration for one model: the fields of the cell, and the name that the sweep gave it."""

    name: str
    selection: str
    fields: dict[str, Any]


def make_plan(sweep: Sweep, *, limit: int | None = None, device: str = "cpu") -> Plan:
    """The jobs of a sweep; `limit` images per shift instead of the sweep's own limit.

    Opens every model and data set, so whatever is missing is reported before anything runs.
    """
    jobs: dict[str, Job] = {}
    requests: dict[Request, None] = {}
    sources = [_open_source(choice, sweep.folder, device) for choice in sweep.sources]
    plugins = loaded_plugins()  # among them the code of these sources
    tuned = _read_all_tuned(sweep.methods)
    configurations = [list(_configurations(sweep, source, tuned)) for source in sources]
    for data in sweep.data:
        data = data if limit is None else replace(data, limit=limit)
        for shifts in streams_of(data, sweep.stream.setting):
            for source, its_configurations in zip(sources, configurations, strict=True):
                _check_fit(source, data, opened_shift(shifts[0]), device)
                for seed in sweep.seeds:
                    base, samples = _base(sweep, data, shifts, source, seed)
                    for configuration in its_configurations:
                        cell = Cell(**base, **configuration.fields)
                        cell = replace(cell, plugins=_plugins_of(cell))
                        job = Job(cell, source.opened_from, shifts, samples, device, plugins)
                        jobs.setdefault(cell.key, job)
                        requests.setdefault(
                            Request(cell.key, configuration.name, configuration.selection)
                        )
    cautions = tuple(source.checkpoint.caution for source in sources if source.checkpoint.caution)
    return Plan(tuple(jobs.values()), tuple(requests), cautions)


def _open_source(choice: ModelChoice, folder: Path, device: str) -> _Source:
    opened_from = ModelSource.of(choice, folder)
    checkpoint, digest = opened_model(opened_from, device, opened_from.written())
    if not checkpoint.loss_spec:
        raise ValueError(
            f"a benchmark needs the loss that the model was trained with; {choice.name} does not tell it. "
            "Pass trained_with=, for example trained_with=cross-entropy."
        )
    return _Source(choice, opened_from, checkpoint, digest, open_loss(checkpoint.loss_spec))


def _read_all_tuned(methods: Sequence[MethodChoice]) -> dict[str, Tuned]:
    return {choice.tuned: read_tuned(choice.tuned) for choice in methods if choice.tuned}


def _configurations(
    sweep: Sweep, source: _Source, tuned: dict[str, Tuned]
) -> Iterator[_Configuration]:
    """Every method at every point of its grid."""
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
                source.checkpoint.metadata.architecture, source.loss_label, choice.name
            )
            selection = found.selection
        for settings in choice.settings():
            fields = canonical_settings(
                choice.method,
                {**defaults, **chosen, **settings},
                source.loss,
                source.checkpoint.preprocessing,
            )
            yield _Configuration(choice.title or choice.name, selection, fields)


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
        bursts=sweep.stream.bursts,
    )
    fields = {
        "data": data.name,
        "shifts": tuple(_facts(shift) for shift in shifts),
        "metric": shifts[0].dataset.metric,
        "setting": sweep.stream.setting,
        "rounds": sweep.stream.rounds if sweep.stream.setting == "recurring" else None,
        "bursts": str(parse_bursts(sweep.stream.bursts)) if stream.setting == BURSTS else None,
        "order": sweep.stream.order,
        "concentration": sweep.stream.concentration if dirichlet else None,
        "batch_size": sweep.stream.batch_size,
        "limit": limit,
        "seed": seed,
        "architecture": source.checkpoint.metadata.architecture,
        "loss": source.loss_label,
        "model_digest": source.digest,
        "model_files": source.opened_from.digests(),
        "logits": source.choice.logits,
        "dim": source.choice.dim,
        "checkpoint": label_of(source.choice.name),
    }
    return fields, stream.samples


def _plugins_of(cell: Cell) -> dict[str, str]:
    """The plugin files without which there would be no such cell, with their digests."""
    names: list[tuple[Registry[Any], str]] = [
        (METHODS, cell.method),
        (LOSSES, cell.loss.partition(":")[0]),
        (DATASETS, parse_spec(cell.data)[0]),
        (MODELS, cell.architecture),
        *((CORRUPTIONS, shift.name) for shift in cell.shifts),
    ]
    found = (registry.plugin_of(name) for registry, name in names)
    return {plugin.name: plugin.digest for plugin in found if plugin is not None}


def _facts(shift: Shift) -> CellShift:
    return CellShift(**shift.record())


def _check_fit(source: _Source, data: DataChoice, shift: Shift, device: str) -> None:
    """Refuse a model that cannot predict the classes of the data.

    A checkpoint tells how many it has; any other network is fed two images.
    """
    classes, found = len(shift.dataset.classes), len(source.checkpoint.classes)
    if source.checkpoint.files or not found:
        where = Scores(source.choice.logits, source.choice.dim)
        logits = logits_of(source.checkpoint.model, first_images(shift, device), where)
        fits = logits.shape[-1] == source.loss.labels.scores(classes)
        found = classes if fits else logits.shape[-1]
    if found != classes:
        raise ValueError(
            f"model and data must agree in the number of classes; {source.choice.name} has {found}, "
            f"{data.name} has {classes}. Leave one of them out of the sweep."
        )
