"""How long a plan will take, before it is run."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from fenchel.bench.plan import Plan
from fenchel.bench.record import Cell, Record
from fenchel.bench.running import seconds_per_sample
from fenchel.bench.sources import Job


@dataclass(frozen=True)
class Estimate:
    """The number of cells of a plan, and the seconds that those without a record will take."""

    cells: int
    done: int
    failed: int
    seconds: float
    measured_kinds: int
    """Kinds of cells whose speed was known from records."""
    calibrated_kinds: int
    """Kinds of cells of which two batches were run to learn their speed."""

    @property
    def to_run(self) -> int:
        """Cells without a record."""
        return self.cells - self.done - self.failed


def estimate(plan: Plan, records: Iterable[Record], workers: int = 1) -> Estimate:
    """Speeds from records of the same kind of cell, else from two batches run here and now."""
    known = list(records)
    status = {record.key: record.status for record in known}
    speeds: dict[tuple[object, ...], list[float]] = {}
    for record in known:
        if record.status == "done" and record.samples and record.seconds == record.seconds:
            speeds.setdefault(_kind(record.cell), []).append(record.seconds / record.samples)
    pending = [job for job in plan.jobs if job.cell.key not in status]
    calibrated = _calibrated([job for job in pending if _kind(job.cell) not in speeds])
    speed = {kind: statistics.median(values) for kind, values in speeds.items()} | calibrated
    statuses = [status[key] for key in plan.keys if key in status]
    return Estimate(
        cells=len(plan.jobs),
        done=statuses.count("done"),
        failed=statuses.count("failed"),
        seconds=sum(job.samples * speed[_kind(job.cell)] for job in pending) / workers,
        measured_kinds=len({_kind(job.cell) for job in pending} - set(calibrated)),
        calibrated_kinds=len(calibrated),
    )


def _calibrated(jobs: Iterable[Job]) -> dict[tuple[object, ...], float]:
    first: dict[tuple[object, ...], Job] = {}
    for job in jobs:
        first.setdefault(_kind(job.cell), job)
    return {kind: seconds_per_sample(job) for kind, job in first.items()}


def _kind(cell: Cell) -> tuple[object, ...]:
    """The fields of a cell that mostly decide its speed."""
    return (
        cell.model_digest,
        cell.data,
        cell.method,
        cell.steps,
        cell.predict,
        cell.protect,
        cell.optimizer,
        cell.batch_size,
    )
