"""Processes of this machine. A worker that is killed costs the cell it was at, and that is begun again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import final

import torch

from fenchel.bench.executors.base import ATTEMPTS, EXECUTORS, Executor
from fenchel.bench.record import Record
from fenchel.bench.running import failed_record, run_job
from fenchel.bench.sources import Job

STOPPING_SECONDS = 5.0


@dataclass
class _Worker:
    process: SpawnProcess
    connection: Connection
    job: Job | None = None


@final
@EXECUTORS.register("processes")
class Processes(Executor):
    """Fresh interpreters (spawned, not forked: safe with threads and CUDA), started as needed."""

    name = "processes"

    def __init__(self, workers: int = 1, address: str | None = None) -> None:
        super().__init__(workers, address)
        self.capacity = workers
        self._crew: list[_Worker] = []
        self._attempts: dict[str, int] = {}
        self._lost: list[Record] = []

    def submit(self, job: Job) -> None:
        worker = next((worker for worker in self._crew if worker.job is None), None)
        if worker is None:
            worker = _started()
            self._crew.append(worker)
        worker.job = job
        try:
            worker.connection.send(job)
        except OSError:
            self._bury(worker)

    def wait(self, seconds: float) -> list[Record]:
        if not self._lost:
            wait([item for w in self._crew for item in (w.connection, w.process.sentinel)], seconds)
        records, self._lost = self._lost, []
        for worker in list(self._crew):
            if worker.connection.poll():
                try:
                    records.append(worker.connection.recv())
                    worker.job = None
                except (EOFError, OSError):
                    self._bury(worker)
            elif not worker.process.is_alive():
                self._bury(worker)
        return records

    def _bury(self, worker: _Worker) -> None:
        """Let another worker do what a dead one was at, or give the cell up after a few deaths."""
        self._crew.remove(worker)
        worker.connection.close()
        worker.process.join(STOPPING_SECONDS)
        job = worker.job
        if job is None:
            return
        deaths = self._attempts[job.cell.key] = self._attempts.get(job.cell.key, 0) + 1
        if deaths < ATTEMPTS:
            self.submit(job)
        else:
            how = _how_it_ended(worker.process.exitcode)
            reason = f"WorkerDied: {deaths} workers died at this cell, the last one {how}."
            self._lost.append(failed_record(job, reason))

    def close(self) -> None:
        for worker in self._crew:
            # Results matter only once the driver has them: nobody waits for those under way.
            worker.process.terminate()
        for worker in self._crew:
            worker.process.join(STOPPING_SECONDS)
            worker.connection.close()
        self._crew = []


def _started() -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _work(connection: Connection) -> None:
    """The life of a worker: jobs in, records out, until nobody is at the other end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides what an interruption means
    threading.Thread(target=_end_with_driver, daemon=True).start()
    torch.set_num_threads(1)
    try:
        while True:
            connection.send(run_job(connection.recv()))
    except (EOFError, OSError):
        return


def _end_with_driver() -> None:
    """A killed driver cannot stop its workers: they watch it instead."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        wait([driver.sentinel])
        os._exit(1)


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return "without a trace"
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"
