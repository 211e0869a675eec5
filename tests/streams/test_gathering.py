"""Micro-batches: in order, bounded, and no request fails for another's fault."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from fenchel.streams import MicroBatches, Request, TooBusy

SECONDS = 30.0


def ones(count: int = 1, width: int = 2) -> torch.Tensor:
    return torch.ones(count, width)


class Recorder:
    """Answers with the numbers of the batches, and waits first while it is held."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[Any]]] = []
        self.go, self.began = threading.Event(), threading.Event()
        self.go.set()

    def __call__(self, name: str, requests: Sequence[Request]) -> list[Any]:
        self.began.set()
        assert self.go.wait(SECONDS)
        if any(request.about == "bad" for request in requests):
            raise ValueError("bad")
        self.batches.append((name, [request.about for request in requests]))
        return [request.about for request in requests]


def test_what_waits_together_is_answered_together_and_in_order() -> None:
    answer = Recorder()
    answer.go.clear()
    with MicroBatches(answer, most=4) as batches:
        futures = [batches.submit("one", ones(), 0)]
        assert answer.began.wait(SECONDS)
        futures += [batches.submit("one", ones(), number) for number in range(1, 7)]
        other = batches.submit("two", ones(), "other")
        assert batches.count == 7
        answer.go.set()
        assert [future.result(SECONDS) for future in futures] == list(range(7))
        assert other.result(SECONDS) == "other"
    ours = [about for name, about in answer.batches if name == "one"]
    assert ours == [[0], [1, 2, 3, 4], [5, 6]]


def test_only_what_is_alike_is_taken_together_and_large_requests_are_never_divided() -> None:
    answer = Recorder()
    answer.go.clear()
    with MicroBatches(answer, most=4) as batches:
        batches.submit("one", ones(), "first")
        assert answer.began.wait(SECONDS)
        batches.submit("one", ones(1, 2), "a")
        batches.submit("one", ones(1, 3), "wider")
        batches.submit("one", ones(9, 3), "large")
        answer.go.set()
    assert [about for _, about in answer.batches] == [["first"], ["a"], ["wider"], ["large"]]


def test_a_batch_waits_for_others_until_it_is_full() -> None:
    answer = Recorder()
    with MicroBatches(answer, most=3, wait=SECONDS) as batches:
        futures = [batches.submit("one", ones(), number) for number in range(3)]
        assert [future.result(SECONDS) for future in futures] == [0, 1, 2]
    with MicroBatches(answer, most=3, wait=0.05) as batches:
        assert batches.submit("one", ones(), "alone").result(SECONDS) == "alone"
    assert [about for _, about in answer.batches] == [[0, 1, 2], ["alone"]]


def test_a_bad_request_fails_alone() -> None:
    answer = Recorder()
    with MicroBatches(answer, most=3, wait=SECONDS) as batches:
        good, bad, fine = (
            batches.submit("one", ones(), about) for about in ("good", "bad", "fine")
        )
        assert good.result(SECONDS) == "good"
        assert fine.result(SECONDS) == "fine"
        with pytest.raises(ValueError, match="bad"):
            bad.result(SECONDS)


def test_more_than_may_wait_is_refused_and_later_taken_again() -> None:
    answer = Recorder()
    answer.go.clear()
    with MicroBatches(answer, waiting=2, all_waiting=3) as batches:
        batches.submit("one", ones(), 0)
        assert answer.began.wait(SECONDS)
        futures = [batches.submit("one", ones(), number) for number in (1, 2)]
        with pytest.raises(TooBusy, match="at most 2 requests of one stream"):
            batches.submit("one", ones(), 3)
        batches.submit("two", ones())
        with pytest.raises(TooBusy, match="at most 3 requests may wait"):
            batches.submit("three", ones())
        answer.go.set()
        assert [future.result(SECONDS) for future in futures] == [1, 2]
        assert batches.submit("one", ones(), 3).result(SECONDS) == 3
    with pytest.raises(RuntimeError, match="was closed"):
        batches.submit("one", ones())


def test_what_nobody_waits_for_any_more_is_not_computed() -> None:
    answer = Recorder()
    answer.go.clear()
    with MicroBatches(answer, most=1) as batches:
        batches.submit("one", ones(), "first")
        assert answer.began.wait(SECONDS)
        gone = batches.submit("one", ones(), "gone")
        assert gone.cancel()
        answer.go.set()
    assert [about for _, about in answer.batches] == [["first"]]


def test_answers_that_do_not_fit_their_requests_are_an_error_and_no_silence() -> None:
    wrong = [[], ["one", "too many"], ["fine"]]
    with MicroBatches(lambda name, requests: wrong.pop(0)) as batches:
        for _ in range(2):
            with pytest.raises(ValueError, match="argument"):
                batches.submit("one", ones()).result(SECONDS)
        assert batches.submit("one", ones()).result(SECONDS) == "fine"
