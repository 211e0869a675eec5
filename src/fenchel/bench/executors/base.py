"""The small interface behind which cells run anywhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import ClassVar

from fenchel.bench.record import Record
from fenchel.bench.sources import Job
from fenchel.names import Registry

ATTEMPTS = 5
"""A cell has failed once this many workers died at it."""


class Executor(ABC):
    """Takes jobs and gives back records, in whatever order they finish.

    Every submitted job comes back exactly once, as a failed record if need be. An executor never
    touches the store: only the driver writes.
    """

    name: ClassVar[str]
    capacity: int = 1
    """How many jobs may be under way."""

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"there must be at least one worker; got {workers}.")
        if address is not None and self.name != "ray":
            raise ValueError(
                f"a Ray address goes with the ray executor; got {address!r} with {self.name!r}. Add "
                "--executor ray."
            )
        self.workers = 1 if workers is None else workers

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Begin a job; called at most `capacity` times ahead of the results."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Record]:
        """The records that are ready, after waiting for the first for about `seconds` at most."""

    @abstractmethod
    def close(self) -> None:
        """Stop the workers; jobs under way are abandoned."""

    def __enter__(self) -> Executor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


EXECUTORS: Registry[type[Executor]] = Registry("executor", group="fenchel.executors")


def make_executor(
    name: str | None = None, workers: int | None = None, address: str | None = None
) -> Executor:
    """The executor of that name; by default serial for one worker and processes for several."""
    if name is None:
        name = "ray" if address else "serial" if workers in (None, 1) else "processes"
    return EXECUTORS[name](workers, address)
