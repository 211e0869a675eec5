"""Micro-batching: small requests of one stream that wait together are answered together."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from torch import Tensor

from fenchel.adapters.outputs import map_tensors

Answer = Callable[[str, Sequence["Request"]], Sequence[Any]]
"""Answers requests of one stream, which become one batch: one answer per request."""


class TooBusy(RuntimeError):
    """So many requests wait already that another one would wait for too long. Try again later."""


@dataclass(frozen=True)
class Request:
    """Samples of one stream that wait for their turn, and whatever belongs to them."""

    samples: Tensor
    about: Any = None
    answer: Future[Any] = field(default_factory=Future)
    came: float = field(default_factory=time.monotonic)

    def alike(self, other: Request) -> bool:
        """Whether the two fit into one batch."""
        mine, theirs = self.samples, other.samples
        return mine.dtype == theirs.dtype and mine.shape[1:] == theirs.shape[1:]


class MicroBatches:
    """Answers requests in threads of its own: those of a stream in order and in batches, streams in parallel.

    A batch is due when its first request has waited for `wait` seconds, or when it has `most` samples. With
    `wait=0` requests are taken as soon as a thread is free, and only those that came meanwhile are taken
    together. A request is never divided. If a batch fails, its requests are answered one by one, so that
    none fails for another's fault.

    Args:
        answer: what answers the requests of one batch.
        most: samples per batch; a larger request is a batch by itself.
        wait: seconds.
        threads: batches that are under way at once.
        waiting: requests of one stream that may wait, and `all_waiting` of all streams together; more are
            refused with `TooBusy`.
    """

    def __init__(
        self,
        answer: Answer,
        *,
        most: int = 64,
        wait: float = 0.0,
        threads: int = 1,
        waiting: int = 32,
        all_waiting: int = 1024,
    ) -> None:
        for name, value in {"most": most, "threads": threads, "waiting": waiting}.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}. Pass more.")
        self._answer = answer
        self.most, self.wait = most, wait
        self.waiting, self.all_waiting = waiting, all_waiting
        self._changed = threading.Condition()
        self._queues: dict[str, deque[Request]] = {}
        self._at_work: set[str] = set()
        self._count = 0
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"fenchel-batches-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, name: str, samples: Tensor, about: Any = None) -> Future[Any]:
        """Let samples wait for their turn in a stream; the answer comes into the future."""
        request = Request(samples, about)
        with self._changed:
            if self._closed:
                raise RuntimeError("no more requests are taken: this object was closed.")
            queue = self._queues.get(name, ())
            if len(queue) >= self.waiting:
                raise TooBusy(
                    f"at most {self.waiting} requests of one stream may wait; {name!r} has as many. Send the "
                    "next one when one is answered, or put more images into a request."
                )
            if self._count >= self.all_waiting:
                raise TooBusy(
                    f"at most {self.all_waiting} requests may wait; there are as many. Try again later, or "
                    "run more replicas."
                )
            self._queues.setdefault(name, deque()).append(request)
            self._count += 1
            self._changed.notify_all()
        return request.answer

    @property
    def count(self) -> int:
        """Requests that wait at present."""
        return self._count

    def close(self) -> None:
        """Take no more requests, and answer those that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> MicroBatches:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- the threads -----------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                while (found := self._next()) is None:
                    if self._closed and not self._queues:
                        return
                    self._changed.wait(self._seconds_to_wait())
            name, requests = found
            try:
                self._answered(
                    name, [r for r in requests if r.answer.set_running_or_notify_cancel()]
                )
            finally:
                with self._changed:
                    self._at_work.discard(name)
                    self._changed.notify_all()

    def _next(self) -> tuple[str, list[Request]] | None:
        """The requests of the stream that is due and has waited longest; the stream is then at work."""
        now = time.monotonic()
        due = [
            (queue[0].came, name)
            for name, queue in self._queues.items()
            if name not in self._at_work and self._due_at(queue) <= now
        ]
        if not due:
            return None
        _, name = min(due)
        requests = self._first_batch(self._queues[name])
        if not self._queues[name]:
            del self._queues[name]
        self._count -= len(requests)
        self._at_work.add(name)
        return name, requests

    def _due_at(self, queue: deque[Request]) -> float:
        full = sum(len(request.samples) for request in queue) >= self.most
        return 0.0 if self._closed or full else queue[0].came + self.wait

    def _seconds_to_wait(self) -> float | None:
        """Until the next batch is due; None where only a change can make one due."""
        times = [
            self._due_at(queue) for name, queue in self._queues.items() if name not in self._at_work
        ]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _first_batch(self, queue: deque[Request]) -> list[Request]:
        taken = [queue.popleft()]
        size = len(taken[0].samples)
        while queue and taken[0].alike(queue[0]) and size + len(queue[0].samples) <= self.most:
            size += len(queue[0].samples)
            taken.append(queue.popleft())
        return taken

    def _answered(self, name: str, requests: list[Request]) -> None:
        if not requests:
            return
        try:
            answered = list(zip(requests, self._answer(name, requests), strict=True))
        except Exception as error:  # also where there are more or fewer answers than requests
            if len(requests) > 1:
                for request in requests:
                    self._answered(name, [request])
            else:
                requests[0].answer.set_exception(error)
            return
        for request, answer in answered:
            request.answer.set_result(answer)


def rows_of_each(output: Any, sizes: Sequence[int]) -> list[Any]:
    """An output cut back into those of the requests: every tensor with one row per sample is cut alike.

    >>> import torch
    >>> rows_of_each((torch.arange(3), "as it is"), [1, 2])
    [(tensor([0]), 'as it is'), (tensor([1, 2]), 'as it is')]
    """
    total, begin, parts = sum(sizes), 0, []
    for size in sizes:
        rows = slice(begin, begin + size)

        def cut(tensor: Tensor, rows: slice = rows) -> Tensor:
            return tensor[rows] if tensor.shape[:1] == (total,) else tensor

        parts.append(map_tensors(cut, output))
        begin += size
    return parts
