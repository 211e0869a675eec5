"""Independent calls in processes: results in order, and failures that stop the rest."""

from __future__ import annotations

import math
import multiprocessing
import os
import time

import pytest

from fenchel.bench import parallel
from fenchel.bench.parallel import run_all


@pytest.fixture(autouse=True)
def _bare_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that begin at once: tasks of the standard library need nothing that takes long to import."""
    monkeypatch.setattr(parallel, "begin_worker", None)


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_items(workers: int) -> None:
    heard: list[float] = []
    assert run_all(math.sqrt, [9.0, 4.0, 1.0], workers=workers, done=heard.append) == [3, 2, 1]
    assert sorted(heard) == [1, 4, 9]


def test_a_worker_that_is_killed_is_an_error_and_not_a_wait() -> None:
    with pytest.raises(OSError, match="same command continues"):
        run_all(os._exit, [1, 1], workers=2)


def test_the_first_failure_stops_what_is_under_way() -> None:
    deadline, others = time.monotonic() + 300, set(multiprocessing.active_children())
    with pytest.raises(ValueError, match="non-negative"):
        run_all(time.sleep, [600.0, -1.0], workers=2)
    # The pool's own thread may be the one that reaps a worker, a moment after the call has returned.
    while set(multiprocessing.active_children()) - others and time.monotonic() < deadline:
        time.sleep(0.01)
    assert time.monotonic() < deadline


def test_there_is_at_least_one_worker() -> None:
    with pytest.raises(ValueError, match="at least one worker"):
        run_all(math.sqrt, [1.0], workers=0)
