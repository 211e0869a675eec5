"""Cells in processes of this machine. If a worker is killed, its cell is begun again."""

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
from fenchel.performance import retain_freed_memory

STOPPING_SECONDS = 5.0
FAILED_STARTS, KILLED_STARTS = 3, 25
"""How many workers in a row may end, or be killed, before they could begin anything."""
_READY = "ready"


@dataclass
class _Worker:
    process: SpawnProcess
    connection: Connection
    job: Job | None = None
    ready: bool = False


@final
@EXECUTORS.register("processes")
class Processes(Executor):
    """Fresh interpreters (spawned, not forked: safe with threads and CUDA), started as needed."""

    name = "processes"

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        super().__init__(workers, address)
        self.capacity = self.workers
        self._crew: list[_Worker] = []
        self._attempts: dict[str, int] = {}
        self._failed_starts = 0
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
                    records += self._heard(worker, worker.connection.recv())
                except (EOFError, OSError):
                    self._bury(worker)
            elif not worker.process.is_alive():
                self._bury(worker)
        return records

    def _heard(self, worker: _Worker, message: Record | str) -> list[Record]:
        if isinstance(message, Record):
            worker.job = None
            return [message]
        worker.ready = True
        self._failed_starts = 0
        return []

    def _bury(self, worker: _Worker) -> None:
        """Hand the cell of a dead worker to another one, or give it up after a few deaths.

        A worker that died before it could begin says nothing about its cell.
        """
        self._crew.remove(worker)
        worker.connection.close()
        worker.process.join(STOPPING_SECONDS)
        how = _how_it_ended(worker.process.exitcode)
        if not worker.ready:
            self._count_failed_start(worker.process.exitcode, how)
        job = worker.job
        if job is None:
            return
        deaths = self._attempts.get(job.cell.key, 0) + worker.ready
        self._attempts[job.cell.key] = deaths
        if deaths < ATTEMPTS:
            self.submit(job)
        else:
            reason = f"WorkerDied: {deaths} workers died at this cell, the last one {how}."
            self._lost.append(failed_record(job, reason))

    def _count_failed_start(self, code: int | None, how: str) -> None:
        self._failed_starts += 1
        was_killed = code is not None and code < 0
        if self._failed_starts >= (KILLED_STARTS if was_killed else FAILED_STARTS):
            raise OSError(
                f"workers must be able to start; {self._failed_starts} in a row did not, the last one "
                f"ended {how}. Its messages are above; '--executor serial' needs no workers."
            )

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
    """The main loop of a worker: jobs in, records out, until the driver closes the connection."""
    begin_worker()
    try:
        connection.send(_READY)
        while True:
            connection.send(run_job(connection.recv()))
    except (EOFError, OSError):
        return


def begin_worker() -> None:
    """Set up a worker before its first task: one torch thread, and only its driver stops it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides what an interruption means
    threading.Thread(target=_end_with_driver, daemon=True).start()
    torch.set_num_threads(1)
    retain_freed_memory()


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
