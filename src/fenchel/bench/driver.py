"""The driver: claims cells, has them run, and is the only one to write results.

Cells run at least once; results land exactly once. Killed at any moment, a driver loses the cells that
were under way and nothing else. Several drivers may share a store: each claims cells of its own, and
waits at the end for those of the others.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from fenchel.bench.executors import Executor
from fenchel.bench.owners import LEASE_SECONDS, Heartbeat, new_owner, release_the_dead
from fenchel.bench.plan import Plan
from fenchel.bench.sources import Job
from fenchel.bench.store import Store
from fenchel.bench.watching import Watcher

WAIT_SECONDS = 0.5
OTHERS_SECONDS = 0.2


@dataclass(frozen=True)
class Summary:
    """The state of a sweep after a run: all of its cells, and those that this run added."""

    planned: int
    done: int
    failed: int
    ran: int
    seconds: float


def run_plan(
    plan: Plan,
    store: Store,
    executor: Executor,
    watcher: Watcher | None = None,
    *,
    retry_failed: bool = False,
    lease_seconds: float = LEASE_SECONDS,
) -> Summary:
    """Run every cell of a plan that has no record yet; return when each has one."""
    started = time.perf_counter()
    watcher = watcher or Watcher()
    store.add_plan(plan)
    if retry_failed:
        store.forget_failures(set(plan.keys))
    owner = new_owner()
    release_the_dead(store)
    try:
        with Heartbeat(store.path, owner, lease_seconds):
            ran = _Run(plan, store, executor, watcher, owner, lease_seconds).until_done()
    finally:
        store.release(owner)
    counts = store.counts(plan.keys)
    seconds = time.perf_counter() - started
    return Summary(counts.planned, counts.done, counts.failed, ran, seconds)


class _Run:
    def __init__(
        self,
        plan: Plan,
        store: Store,
        executor: Executor,
        watcher: Watcher,
        owner: str,
        lease_seconds: float,
    ) -> None:
        self._jobs: dict[str, Job] = {job.cell.key: job for job in plan.jobs}
        self._store, self._executor, self._watcher = store, executor, watcher
        self._owner, self._lease = owner, lease_seconds
        self._running: set[str] = set()
        self._ran = 0

    def until_done(self) -> int:
        """Run cells until every one has a record; how many of them this run added."""
        waiting = self._without_record()
        self._watcher.begin(
            list(self._jobs.values()), {key for key in self._jobs if key not in waiting}
        )
        while waiting or self._running:
            begun = self._begin_some(waiting)
            waiting = [key for key in waiting if key not in begun]
            if self._running:
                self._collect()
            elif waiting:
                time.sleep(OTHERS_SECONDS)
                release_the_dead(self._store)
                waiting = self._without_record()
                self._watcher.others(len(waiting))
        return self._ran

    def _begin_some(self, waiting: list[str]) -> set[str]:
        room = self._executor.capacity - len(self._running)
        if room < 1 or not waiting:
            return set()
        begun = self._store.claim(waiting, self._owner, self._lease, room)
        for key in begun:
            self._running.add(key)
            self._executor.submit(self._jobs[key])
        return set(begun)

    def _collect(self) -> None:
        for record in self._executor.wait(WAIT_SECONDS):
            self._running.discard(record.key)
            self._ran += self._store.add_record(record)
            self._watcher.finished(record)

    def _without_record(self) -> list[str]:
        known = self._store.statuses()
        return [key for key in self._jobs if key not in known]
