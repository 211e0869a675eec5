"""`fenchel reproduce hostile`: streams on which adapting does harm, and what the default makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fenchel.cli.console import csv_rows, err, note, out, show_tables, tell
from fenchel.cli.result_files import write_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fenchel.bench.record import Record
    from fenchel.paper import Preset
    from fenchel.paper.hostile_planning import HostilePlan
    from fenchel.paper.planning import FoundCheckpoint


def require_hostile(preset: Preset) -> None:
    """Refuse --column and --row for a preset that has none."""
    if preset.figure != "hostile":
        raise ValueError(
            f"--column and --row choose a part of `hostile`; got them for {preset.name}. Leave them out."
        )


def planned_hostile(
    preset: Preset, scale: str, checkpoints: Sequence[FoundCheckpoint], device: str
) -> HostilePlan:
    """The table with the networks and data at hand."""
    from fenchel.paper.hostile import hostile_table
    from fenchel.paper.hostile_planning import plan_hostile

    return plan_hostile(hostile_table(), preset, scale, checkpoints, device=device)


def conclude_hostile(
    planned: HostilePlan, records: Mapping[str, Record], where: Path, form: str
) -> dict[str, Any]:
    """Print one table per network, write every number as CSV; the same as plain values."""
    from fenchel.paper.hostile_numbers import (
        Place,
        hostile_csv,
        hostile_layout,
        hostile_rows,
        summary,
    )
    from fenchel.paper.hostile_verdicts import verdicts_csv, verdicts_layout, watched_runs

    def records_of(place: Place) -> list[Record]:
        return [records[key] for key in planned.keys_of(place) if key in records]

    rows = hostile_rows(planned.table, records_of)
    runs = watched_runs(planned.table, records_of)
    numbers = hostile_csv(rows)
    here = {row.network.title for row in planned.rows if row.line.plan.jobs}
    scale = (
        f"error in % at scale {planned.whole.scale}; the default in bold where it meets the goal"
    )
    layouts = [
        hostile_layout(rows, network, f"{network.title}: {scale}")
        for network in planned.table.networks
        if network.title in here
    ]
    if runs:
        layouts.append(
            verdicts_layout(runs, planned.table, "Is harm noticed without labels? Counts of runs")
        )
    show_tables(layouts, form, numbers)
    remarks = [*summary(rows), *(f"note: {text}" for text in planned.whole.preset.notes)]
    settings = ", ".join(f"{name} {value}" for name, value in planned.table.untuned.items())
    remarks += [
        f"note: no settings tuned for {title} are here: its methods run with {settings}"
        for title in planned.untuned
    ]
    tell(out if form == "terminal" else err, [*remarks, *planned.whole.missing_lines()])
    name = planned.whole.preset.name
    files = write_files(
        {where / f"{name}.csv": numbers, where / f"{name}-verdicts.csv": verdicts_csv(runs)}
    )
    note(f"results: {where}")
    return {"rows": csv_rows(numbers), "remarks": remarks, "files": [str(file) for file in files]}
