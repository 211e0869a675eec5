"""Independent calls in processes of this machine, each on one torch thread."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from typing import TypeVar

from fenchel.bench.executors.processes import begin_worker

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_all(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    workers: int = 1,
    done: Callable[[Item], object] | None = None,
) -> list[Result]:
    """`function` of every item, in their order; `done` is called as each ends.

    One worker is this process. Several are fresh interpreters, so `function` must be importable and
    items and results must pickle. The first failure, or an interruption, stops them all.
    """
    if workers < 1:
        raise ValueError(f"there must be at least one worker; got {workers}. Pass 1 or more.")
    tell = done or (lambda item: None)
    if workers == 1 or len(items) < 2:
        results = []
        for item in items:
            results.append(function(item))
            tell(item)
        return results
    others = multiprocessing.active_children()
    context = multiprocessing.get_context("spawn")
    count = min(workers, len(items))
    with ProcessPoolExecutor(count, mp_context=context, initializer=begin_worker) as pool:
        futures = {pool.submit(function, item): item for item in items}
        try:
            for future in as_completed(futures):
                future.result()
                tell(futures[future])
        except BaseException as error:
            _stop(pool, others)
            if isinstance(error, BrokenProcessPool):
                raise OSError(
                    "workers must live until they are done; one was killed, perhaps for want of memory. "
                    "The same command continues; fewer workers need less memory."
                ) from error
            raise
    return [future.result() for future in futures]


def _stop(pool: ProcessPoolExecutor, others: Sequence[BaseProcess]) -> None:
    """Stop all workers without waiting for calls under way, which may take minutes."""
    pool.shutdown(wait=False, cancel_futures=True)
    stopped = [process for process in multiprocessing.active_children() if process not in others]
    for process in stopped:
        process.terminate()
    for process in stopped:
        process.join()
