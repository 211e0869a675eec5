"""Records put in order: sections of one model on one data set, with a row for every configuration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fenchel.bench.plan import Request
from fenchel.bench.record import Cell, Record, canonical_json
from fenchel.bench.store import Counts, Store
from fenchel.data.corruptions import CORRUPTIONS
from fenchel.methods import FIELD_METHODS, STANDARD_METHODS
from fenchel.report.significance import Difference, compare_records
from fenchel.report.tables import ErrorTable, Measurement, error_table

SECTION_FIELDS = (
    "data",
    "architecture",
    "loss",
    "model_digest",
    "setting",
    "rounds",
    "bursts",
    "order",
    "concentration",
    "batch_size",
    "limit",
    "metric",
)
CONFIGURATION_FIELDS = (
    "optimizer",
    "learning_rate",
    "temperature",
    "steps",
    "predict",
    "statistics",
    "parameters",
    "episodic",
    "protect",
    "options",
)
_SHORT = {"optimizer": "", "learning_rate": "rate ", "temperature": "T "}


@dataclass(frozen=True)
class Configuration:
    """A method under the name that the sweep uses, with its settings and its records."""

    method: str
    selection: str
    settings: Mapping[str, Any]
    records: tuple[Record, ...]


@dataclass(frozen=True)
class Section:
    """Everything about one model on one data set under one protocol; `configurations` by their label."""

    cell: Cell
    """Any of its cells: they agree in `SECTION_FIELDS`."""
    configurations: Mapping[str, Configuration]
    title: str

    @property
    def records(self) -> tuple[Record, ...]:
        """Its finished records, each once."""
        found = {
            record.key: record
            for configuration in self.configurations.values()
            for record in configuration.records
        }
        return tuple(found.values())

    @property
    def severities(self) -> tuple[int, ...]:
        """The severities that occur."""
        found = {shift.severity for record in self.records for shift in record.cell.shifts}
        return tuple(sorted(severity for severity in found if severity is not None))

    def table(self) -> ErrorTable:
        """Errors by corruption; by severity where there are several."""
        if len(self.severities) > 1:
            return self._table(lambda name, severity: f"severity {severity}")
        return self._table(lambda name, severity: name)

    def corruption_table(self) -> ErrorTable:
        """Errors by corruption, each averaged over its severities."""
        return self._table(lambda name, severity: name)

    def by_severity(self) -> dict[tuple[str, int], Measurement]:
        """Errors by (label, severity), averaged over corruptions."""
        table = self._table(lambda name, severity: str(severity))
        return {
            (label, int(column)): cell
            for (label, column), cell in table.cells.items()
            if column.isdigit()
        }

    def _table(self, column_of: Callable[[str, int | None], str]) -> ErrorTable:
        errors: dict[tuple[str, str], dict[int, list[float]]] = {}
        columns: set[str] = set()
        for label, configuration in self.configurations.items():
            for record in configuration.records:
                for (name, severity), error in shift_errors(record).items():
                    column = column_of(name, severity)
                    columns.add(column)
                    by_seed = errors.setdefault((label, column), defaultdict(list))
                    by_seed[record.cell.seed].append(error)
        values = {
            key: [float(np.mean(by_seed[seed])) for seed in sorted(by_seed)]
            for key, by_seed in errors.items()
        }
        usual = {name: place for place, name in enumerate(CORRUPTIONS)}
        ordered = sorted(columns, key=lambda name: (usual.get(name, len(usual)), name))
        return error_table(values, list(self.configurations), ordered)

    def curves(
        self, curve_of: Callable[[Record], Sequence[float]]
    ) -> dict[tuple[str, str], list[Sequence[float]]]:
        """A curve for every record, by (label, what is streamed)."""
        found: dict[tuple[str, str], list[Sequence[float]]] = {}
        for label, configuration in self.configurations.items():
            for record in configuration.records:
                if curve := curve_of(record):
                    found.setdefault((label, record.cell.shift_title), []).append(curve)
        return found

    def heat_maps(self) -> dict[str, dict[tuple[float, float], float]]:
        """Mean errors by (learning rate, temperature), where a method has a grid of both.

        By method and optimiser; only points that were run on everything the others were.
        """
        groups: dict[str, dict[tuple[float, float], list[Record]]] = {}
        for configuration in self.configurations.values():
            rate, temperature = (
                configuration.settings["learning_rate"],
                configuration.settings["temperature"],
            )
            if rate is not None and temperature is not None:
                name = f"{configuration.method}, {configuration.settings['optimizer']}"
                points = groups.setdefault(name, {})
                points.setdefault((rate, temperature), []).extend(configuration.records)
        return {name: grid for name, points in groups.items() if (grid := _grid(points))}

    def differences(self, reference: str) -> dict[str, Difference]:
        """Every configuration against the one labelled `reference`, by paired bootstrap over images."""
        theirs, limited = self.configurations[reference].records, self.cell.limit is not None
        found = {
            label: compare_records(configuration.records, theirs, limited=limited)
            for label, configuration in self.configurations.items()
            if label != reference
        }
        return {label: difference for label, difference in found.items() if difference}


def sections_of(
    records: Iterable[Record], requests: Mapping[str, Sequence[Request]]
) -> tuple[Section, ...]:
    """Finished records in sections; a cell with several names in the sweep has one row per name."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.status == "done":
            key = canonical_json([getattr(record.cell, name) for name in SECTION_FIELDS])
            groups.setdefault(key, []).append(record)
    cells = [group[0].cell for group in groups.values()]
    return tuple(
        Section(group[0].cell, _configurations(group, requests), _title(group[0].cell, cells))
        for group in groups.values()
    )


def _title(cell: Cell, cells: Sequence[Cell]) -> str:
    """`cifar10-c, resnet26 trained with poly:epsilon=6`, and the fields that differ from other sections."""
    known = ("data", "architecture", "loss")
    same = [other for other in cells if all(getattr(other, k) == getattr(cell, k) for k in known)]
    parts = [f"{cell.data}, {cell.architecture} trained with {cell.loss}"]
    for name in SECTION_FIELDS[len(known) :]:
        if any(getattr(other, name) != getattr(cell, name) for other in same):
            parts.append(
                f"model {cell.checkpoint or ''} {cell.model_digest[:8]}"
                if name == "model_digest"
                else f"{name.replace('_', ' ')} {getattr(cell, name)}"
            )
    if len(parts) == 1 and cell.setting != "reset":
        parts.append(cell.setting)
    return ", ".join(parts)


@dataclass(frozen=True)
class Results:
    """What a report is made of."""

    title: str
    sections: tuple[Section, ...]
    failures: tuple[Record, ...]
    requests: dict[str, tuple[str, ...]]
    """For each key, the names that sweeps use for its cell."""
    counts: Counts


def read_results(path: str | Path) -> Results:
    """The results in a store, which may still be growing."""
    with Store.open_readonly(path) as store:
        records, requests, counts = list(store.records()), store.requests(), store.counts()
    return Results(
        title=Path(path).stem,
        sections=sections_of(records, requests),
        failures=tuple(record for record in records if record.status == "failed"),
        requests={
            key: tuple(dict.fromkeys(name.method for name in names))
            for key, names in requests.items()
        },
        counts=counts,
    )


def shift_errors(record: Record) -> dict[tuple[str, int | None], float]:
    """The error on each shift of the stream, in percent."""
    shifts = record.cell.shifts
    if len(shifts) == 1:
        return {(shifts[0].name, shifts[0].severity): record.error_percent}
    wrong: dict[tuple[str, int | None], int] = defaultdict(int)
    samples: dict[tuple[str, int | None], int] = defaultdict(int)
    for shift, w, n in zip(shifts, record.shift_wrong, record.shift_samples, strict=True):
        wrong[shift.name, shift.severity] += w
        samples[shift.name, shift.severity] += n
    return {key: 100 * wrong[key] / count for key, count in samples.items() if count}


def _configurations(
    records: Sequence[Record], requests: Mapping[str, Sequence[Request]]
) -> dict[str, Configuration]:
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        settings = canonical_json(
            {name: getattr(record.cell, name) for name in CONFIGURATION_FIELDS}
        )
        names = requests.get(record.key) or (Request(record.key, record.cell.method),)
        for name in names:
            groups.setdefault((name.method, name.selection, settings), []).append(record)
    known = {name: place for place, name in enumerate((*STANDARD_METHODS, *FIELD_METHODS))}
    configurations = [
        Configuration(
            method,
            selection,
            {name: getattr(found[0].cell, name) for name in CONFIGURATION_FIELDS},
            tuple(found),
        )
        for (method, selection, _), found in groups.items()
    ]
    configurations.sort(
        key=lambda configuration: (
            known.get(configuration.method, len(known)),
            *_sorting(configuration),
        )
    )
    return {
        _label(configuration, configurations): configuration for configuration in configurations
    }


def _sorting(configuration: Configuration) -> list[tuple[float, str]]:
    """Settings one after the other: numbers by size, anything else by its text."""
    values = [*configuration.settings.values(), configuration.selection]
    return [
        (float(value), "") if isinstance(value, int | float) else (0.0, str(value))
        for value in values
    ]


def _label(configuration: Configuration, configurations: Sequence[Configuration]) -> str:
    """The method, and the settings that differ from other configurations of the same method."""
    same = [other for other in configurations if other.method == configuration.method]
    parts = [configuration.method]
    for name in CONFIGURATION_FIELDS:
        if any(other.settings[name] != configuration.settings[name] for other in same):
            value = configuration.settings[name]
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            parts.append(_SHORT.get(name, f"{name} ") + shown)
    if any(other.selection != configuration.selection for other in same):
        parts.append(configuration.selection)
    return ", ".join(parts)


def _grid(
    points: Mapping[tuple[float, float], Sequence[Record]],
) -> dict[tuple[float, float], float]:
    rates, temperatures = ({point[axis] for point in points} for axis in (0, 1))
    if len(rates) < 2 or len(temperatures) < 2:
        return {}
    most = max(map(len, points.values()))
    return {
        point: float(np.mean([record.error_percent for record in records]))
        for point, records in points.items()
        if len(records) == most
    }
