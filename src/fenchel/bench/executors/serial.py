"""One cell after the other, in this process."""

from __future__ import annotations

from typing import final

from fenchel.bench.executors.base import EXECUTORS, Executor
from fenchel.bench.record import Record
from fenchel.bench.running import run_job
from fenchel.bench.sources import Job


@final
@EXECUTORS.register("serial")
class Serial(Executor):
    """The simplest executor, and the one to debug with."""

    name = "serial"

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        super().__init__(workers, address)
        if self.workers != 1:
            raise ValueError(
                f"the serial executor has one worker; got {workers}. Use --executor processes."
            )
        self._jobs: list[Job] = []

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def wait(self, seconds: float) -> list[Record]:
        return [run_job(self._jobs.pop(0))] if self._jobs else []

    def close(self) -> None:
        self._jobs.clear()
