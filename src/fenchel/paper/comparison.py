"""Our numbers for the lines of a preset, from records, to stand beside the paper's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fenchel.bench.record import Record
from fenchel.paper.planning import LinePlan, PresetPlan
from fenchel.paper.preset import Line, PublishedRun


@dataclass(frozen=True)
class Comparison:
    """One number: the paper's run, and our error for each seed, the mean over the shifts run.

    Attributes:
        errors: in percent, one per seed whose shifts were all done; empty if nothing could be run.
        shifts, shifts_wanted: over how many shifts the mean goes, and over how many it should.
        failed: how many of its cells failed.
        records: those of the cells that are done.
    """

    line: Line
    method: str
    run: PublishedRun
    errors: tuple[float, ...]
    shifts: int
    shifts_wanted: int
    failed: int
    records: tuple[Record, ...] = ()

    @property
    def is_partial(self) -> bool:
        """Whether shifts are missing from the mean."""
        return self.shifts < self.shifts_wanted


def compare(planned: PresetPlan, records: Mapping[str, Record]) -> tuple[Comparison, ...]:
    """A comparison for every method of every line; `records` by key."""
    return tuple(
        _compare(line, method, run, records)
        for line in planned.lines
        for method, run in line.line.runs.items()
    )


def _compare(
    planned: LinePlan, method: str, run: PublishedRun, records: Mapping[str, Record]
) -> Comparison:
    found = _records_of(planned, method, records)
    done = tuple(record for record in found if record.status == "done")
    by_seed: dict[int, list[float]] = defaultdict(list)
    for record in done:
        by_seed[record.cell.seed].append(record.error_percent)
    whole = [errors for _, errors in sorted(by_seed.items()) if len(errors) == planned.shifts]
    return Comparison(
        line=planned.line,
        method=method,
        run=run,
        errors=tuple(float(np.mean(errors)) for errors in whole),
        shifts=planned.shifts,
        shifts_wanted=planned.shifts_wanted,
        failed=sum(record.status == "failed" for record in found),
        records=done,
    )


def _records_of(planned: LinePlan, method: str, records: Mapping[str, Record]) -> list[Record]:
    keys = [name.key for name in planned.plan.requests if name.method == method]
    return [records[key] for key in keys if key in records]


def task_loss_curves(
    planned: LinePlan, records: Mapping[str, Record]
) -> dict[str, list[list[float]]]:
    """For each method, one curve per seed: the task loss of every batch, averaged over the shifts."""
    curves: dict[str, list[list[float]]] = {}
    for method in planned.line.runs:
        by_seed: dict[int, list[tuple[float, ...]]] = defaultdict(list)
        for record in _records_of(planned, method, records):
            if record.status == "done":
                by_seed[record.cell.seed].append(record.batch_task_losses)
        for _, losses in sorted(by_seed.items()):
            shortest = min(map(len, losses))
            mean = np.mean([curve[:shortest] for curve in losses], axis=0)
            curves.setdefault(method, []).append(mean.tolist())
    return curves
