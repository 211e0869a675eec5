"""Cells as tasks of a Ray cluster, or of a Ray started on this machine.

Models and data are put into Ray's object store once. Every worker process fetches them once and keeps
them for later cells, so the cluster's nodes need none of the files. Ray runs a task again when a
worker or a node dies; the driver's store takes whichever result comes first.
"""

from __future__ import annotations

import traceback
from functools import lru_cache
from typing import Any, final

from fenchel.bench.executors.base import ATTEMPTS, EXECUTORS, Executor
from fenchel.bench.record import Record
from fenchel.bench.running import failed_record, guarded
from fenchel.bench.sources import (
    KEPT_MODELS,
    KEPT_SHIFTS,
    Job,
    ShiftSource,
    check_digests,
    check_files,
    opened_file,
    opened_model,
    remembering,
)
from fenchel.cluster import Cluster, imported
from fenchel.data.stream import Shift
from fenchel.models import Checkpoint


@final
@EXECUTORS.register("ray")
class Ray(Executor):
    """Real Ray tasks with retries; `address` joins a cluster, else one is started here.

    On a cluster that is there already, the default is as many workers as it has processors.
    """

    name = "ray"

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        super().__init__(workers, address)
        self._cluster = Cluster.joined(address, cpus=self.workers)
        self._ray = self._cluster.ray
        if workers is None and self._cluster.was_there:
            self.workers = self._cluster.cpus
        self.capacity = 2 * self.workers  # one under way and one on its way for each
        self._models: dict[tuple[Any, ...], Any] = {}
        self._data: dict[tuple[Any, ...], Any] = {}
        self._jobs: dict[Any, Job] = {}
        self._lost: list[Record] = []

    def submit(self, job: Job) -> None:
        gpus = 1 if job.device.startswith("cuda") else 0
        task = self._ray.remote(num_cpus=1, num_gpus=gpus, max_retries=ATTEMPTS - 1)(run_shipped)
        try:
            shipped = self._shipped(job)
        except Exception as error:  # a file that is gone fails its cells, not the sweep
            reason = f"{type(error).__name__}: {error}"
            self._lost.append(failed_record(job, reason, traceback.format_exc()))
            return
        # Within a list, references arrive as references: the worker fetches what it does not have.
        self._jobs[task.remote(job, shipped)] = job

    def _shipped(self, job: Job) -> list[Any]:
        """References to the model and to the data of each shift."""
        check_files(job)
        model_place = (job.model, "cpu", job.model.written())
        model = self._put(self._models, model_place, opened_model)
        return [model, *(self._put(self._data, (item.file,), opened_file) for item in job.shifts)]

    def _put(self, shelf: dict[tuple[Any, ...], Any], key: tuple[Any, ...], opened: Any) -> Any:
        if key not in shelf:
            shelf[key] = self._ray.put(opened(*key))
        return shelf[key]

    def wait(self, seconds: float) -> list[Record]:
        if self._lost or not self._jobs:
            lost, self._lost = self._lost, []
            return lost
        waiting = list(self._jobs)
        self._ray.wait(waiting, num_returns=1, timeout=seconds)
        ready, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0)
        return [self._result(reference) for reference in ready]

    def _result(self, reference: Any) -> Record:
        job = self._jobs.pop(reference)
        try:
            record: Record = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            first_line = str(error).strip().partition("\n")[0]
            return failed_record(job, f"{type(error).__name__}: {first_line}", str(error))
        return record

    def close(self) -> None:
        for reference in self._jobs:
            self._ray.cancel(reference, force=True)
        self._jobs = {}
        self._cluster.leave()


def run_shipped(job: Job, references: list[Any]) -> Record:
    """The task: run a job whose model and data are in Ray's object store."""

    def fetch() -> tuple[Checkpoint, tuple[Shift, ...]]:
        checkpoint, digest = _fetched_checkpoint(references[0], job.device)
        pairs = zip(job.shifts, references[1:], strict=True)
        shifts = tuple(_fetched_shift(source, reference) for source, reference in pairs)
        check_digests(job, digest, shifts)
        return checkpoint, shifts

    return guarded(job, fetch)


@lru_cache(maxsize=KEPT_MODELS)
def _fetched_checkpoint(reference: Any, device: str) -> tuple[Checkpoint, str]:
    checkpoint, digest = imported().get(reference)
    checkpoint.model.to(device)
    return checkpoint, digest


@lru_cache(maxsize=KEPT_SHIFTS)
def _fetched_shift(source: ShiftSource, reference: Any) -> Shift:
    return remembering(source.made_of(imported().get(reference)))
