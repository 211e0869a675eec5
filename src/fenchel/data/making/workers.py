"""Blocks of work, done here or in processes: the parent alone reacts to an interruption."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

Block = TypeVar("Block")


@contextmanager
def pool(
    maker: Callable[[Block], int], workers: int
) -> Iterator[Callable[[Iterable[Block]], Iterator[int]]]:
    """A function that works through blocks, here or in processes, yielding the images done."""
    if workers == 1:
        yield lambda blocks: map(maker, blocks)
        return
    context = multiprocessing.get_context("spawn")  # a forked torch may deadlock
    with ProcessPoolExecutor(workers, context, initializer=_start, initargs=(maker,)) as processes:
        yield lambda blocks: _in_processes(processes, blocks, 2 * workers)


_maker: Callable[[Any], int] | None = None


def _start(maker: Callable[[Any], int]) -> None:
    """Hand the maker to a worker once, rather than with every block."""
    global _maker
    _maker = maker


def _work(block: Any) -> int:
    if _maker is None:
        raise RuntimeError("a worker was used before it was started")
    return _maker(block)


def _in_processes(
    processes: ProcessPoolExecutor, blocks: Iterable[Any], in_flight: int
) -> Iterator[int]:
    running: set[Future[int]] = set()
    for block in blocks:
        if len(running) >= in_flight:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
        with _interruption_deferred():
            running.add(processes.submit(_work, block))
    for future in running:
        yield future.result()


@contextmanager
def _interruption_deferred() -> Iterator[None]:
    """In the block, SIGINT is blocked, and workers started in it inherit that: the parent alone reacts."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
