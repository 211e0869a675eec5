"""The tables of `fenchel reproduce`, made again from the published cells: no data and no store are needed."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from reading import HERE

from fenchel.bench.exports import import_file
from fenchel.bench.plan import Plan, Request
from fenchel.bench.record import Cell, Record
from fenchel.bench.sources import ShiftSource, shift_sources
from fenchel.bench.store import Store
from fenchel.bench.sweep import DataChoice
from fenchel.models import zoo
from fenchel.models.pretrained.registry import SCHEME
from fenchel.paper import PRESETS, Preset
from fenchel.paper.comparison import Comparison, compare, task_loss_curves
from fenchel.paper.comparison_tables import comparison_csv, shifts_csv
from fenchel.paper.pairing import differences
from fenchel.paper.planning import LinePlan, PresetPlan, find_checkpoints, plan_preset
from fenchel.report.curves import curves_csv

CELLS = (HERE / "cells-results.csv.gz", HERE / "cells-imagenet.csv.gz")
SCALE = "cpu"  # of everything that is published
NO_SWEEPS = (
    "gaussians",
    "gaussian-map",
    "learned",
    "streams",
    "hostile",
)  # these come with files of their own, or from cells of their own


@dataclass(frozen=True)
class Published:
    """The cells: their records by key, and the methods that each of them is a run of."""

    records: Mapping[str, Record]
    methods: Mapping[str, Sequence[str]]


def tables() -> dict[str, str]:
    """Every CSV file that `fenchel reproduce` makes of cells, by its name."""
    found: dict[str, str] = {}
    for preset in PRESETS.values():
        if preset.figure not in NO_SWEEPS:
            found |= _tables_of(preset)
    return found


@cache
def published() -> Published:
    """The cells of all tables."""
    return read_cells(*CELLS)


@cache
def compared(name: str) -> tuple[tuple[LinePlan, ...], tuple[Comparison, ...]]:
    """The lines of a preset as they were run, and every number of them."""
    planned = plan_preset(PRESETS[name], SCALE, find_checkpoints([zoo.folder()]))
    lines = tuple(_as_it_was_run(line, published()) for line in planned.lines)
    return lines, compare(PresetPlan(PRESETS[name], SCALE, lines), published().records)


def read_cells(*files: Path) -> Published:
    """The cells that exports hold, of those that are there."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "cells.sqlite") as store:
        for file in files:
            if file.is_file():
                import_file(store, file)
        records = {record.key: record for record in store.records()}
        asked = store.requests()
    # A cell that was asked for with several selections has each of its methods once all the same.
    methods = {key: sorted({each.method for each in asked[key]}) for key in records}
    return Published(records, methods)


def _tables_of(preset: Preset) -> dict[str, str]:
    lines, rows = compared(preset.name)
    found = {
        f"{preset.name}.csv": comparison_csv(rows, differences(rows)),
        f"{preset.name}-shifts.csv": shifts_csv(rows),
    }
    if preset.figure == "task-loss":
        (line,) = lines
        title = f"{line.line.title}, mean of {line.shifts} shifts"
        curves = task_loss_curves(line, published().records)
        found[f"{preset.name}-curves.csv"] = curves_csv(
            {(method, title): runs for method, runs in curves.items()}
        )
    return found


def _as_it_was_run(line: LinePlan, published: Published) -> LinePlan:
    """The line with the cells that are published, whatever data are on this machine."""
    wanted = shift_sources(
        DataChoice(
            name=line.line.data,
            corruptions=line.line.corruptions,
            severities=line.line.severities,
        )
    )
    cells = [record.cell for record in published.records.values() if _belongs(record.cell, line)]
    asked, run = [], set()
    for place, shift in enumerate(wanted):
        for seed in line.scale.seeds:
            for cell in cells:
                if cell.seed == seed and _is_of(cell, shift):
                    run.add(place)
                    methods = published.methods[cell.key]
                    asked += [
                        Request(cell.key, name, "") for name in methods if _as_set(cell, name, line)
                    ]
    return replace(line, plan=Plan((), tuple(asked)), shifts=len(run))


def _belongs(cell: Cell, line: LinePlan) -> bool:
    """Whether a cell adapts the line's network to the line's data, in streams of its size."""
    return (
        cell.checkpoint == _source(line)
        and cell.data == line.line.data
        and (cell.batch_size, cell.limit) == (line.scale.batch_size, line.scale.limit)
        and len(cell.shifts) == 1
    )


def _source(line: LinePlan) -> str | None:
    """The name of a line's network in cells; published networks need not be on this machine."""
    if line.line.source.pretrained:
        return f"{SCHEME}:{line.line.source.pretrained}"
    return None if line.checkpoint is None else zoo.address(line.checkpoint.path)


def _is_of(cell: Cell, shift: ShiftSource) -> bool:
    (own,) = cell.shifts
    return own.severity == shift.severity and shift.corruption in (None, own.name)


def _as_set(cell: Cell, method: str, line: LinePlan) -> bool:
    """Whether a cell has the settings that the line gives the method."""
    run = line.line.runs.get(method)
    return run is not None and (
        (cell.optimizer, cell.learning_rate, cell.temperature)
        == (run.optimizer, run.learning_rate, run.temperature)
    )
