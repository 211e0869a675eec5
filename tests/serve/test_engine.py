"""What one replica answers, keeps and forgets, without any HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fenchel.adapters.likelihood import Probabilities
from fenchel.methods.protected import Protected
from fenchel.serve.engine import Engine
from fenchel.serve.limits import Limits, Refused
from fenchel.serve.reading import Images
from fenchel.serve.record import POINTS, Record
from fenchel.serve.service import Service
from fenchel.streams import StreamStore

Engines = Callable[..., Engine]
SECONDS = 60.0


def images(count: int = 4, seed: int = 0) -> Images:
    values = np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), np.uint8)
    return Images(tuple(f"{seed}-{place}" for place in range(count)), values)


def asked(engine: Engine, name: str, key: str, given: Images) -> dict[str, Any]:
    return engine.submit(name, key, given).result(SECONDS)


def test_answers_are_those_of_the_stream_run_by_itself(service: Service, engines: Engines) -> None:
    engine = engines(replace(service, source_predictions="always"))
    session = engine.adapter.session()
    probabilities = Probabilities(engine.adapter.settings.loss)
    for seed in range(3):
        given = images(seed=seed)
        inputs = torch.from_numpy(given.values).permute(0, 3, 1, 2).float() / 255
        expected = probabilities(session(inputs))
        assert expected is not None
        source = session.source_prediction(inputs).softmax(-1)
        answer = asked(engine, "north", f"key-{seed}", given)
        asked(engine, "south", f"key-{seed}", images(seed=seed + 10))
        rows = answer["predictions"]
        assert [row["image"] for row in rows] == list(given.names)
        assert [row["prediction"] for row in rows] == expected.argmax(-1).tolist()
        assert [row["confidence"] for row in rows] == expected.amax(-1).tolist()
        assert [row["source_prediction"] for row in rows] == source.argmax(-1).tolist()
        assert (answer["batch"], answer["event"]) == (seed + 1, "updated")
        assert answer["health"]["samples"] == 4 * (seed + 1)


def test_the_source_is_asked_on_the_first_images_and_seldom_after(
    service: Service, engines: Engines
) -> None:
    engine = engines(service)
    said = [
        asked(engine, "one", str(n), images(32, seed=n))["predictions"][0]["source_name"]
        for n in range(5)
    ]
    assert None not in said[:4]  # four batches
    assert said[4] is None
    never = engines(replace(service, store=service.store / "never", source_predictions="never"))
    assert asked(never, "one", "0", images())["predictions"][0]["source_name"] is None


def test_streams_are_protected_unless_another_method_is_named(
    service: Service, engines: Engines
) -> None:
    engine = engines(service)
    assert (engine.adapter.settings.protect, type(engine.adapter.settings.method)) == (
        "auto",
        Protected,
    )
    named = replace(service.adaptation, method="conjugate")
    assert named.open().adapter.settings.protect == "watch"
    assert replace(named, protect="off").open().adapter.settings.protect is False


@pytest.mark.filterwarnings("ignore::fenchel.HarmWarning")
def test_the_verdict_is_that_of_the_session_and_survives_a_replica(
    service: Service, engines: Engines
) -> None:
    greedy = replace(
        service.adaptation, method="conjugate", parameters="all", steps=20, learning_rate=0.3
    )
    service = replace(service, adaptation=greedy)
    engine = engines(service)
    for number in range(2):
        asked(engine, "harmed", str(number), images(32, seed=number))
    told = engine.describe("harmed")
    assert told["verdict"] == "collapsed"
    assert told["course"][-1]["verdict"] == "collapsed"
    assert [row["verdict"] for row in engine.overview()["streams"]] == ["collapsed"]
    engine.close()
    again = engines(service).describe("harmed")
    assert {**again, "time": 0} == {**told, "time": 0}


@pytest.mark.filterwarnings("ignore::fenchel.HarmWarning")
def test_what_the_protection_did_is_told(service: Service, engines: Engines) -> None:
    greedy = replace(
        service.adaptation,
        method="conjugate",
        protect="auto",
        parameters="all",
        steps=20,
        learning_rate=0.3,
    )
    engine = engines(replace(service, adaptation=greedy))
    answer = asked(engine, "harmed", "0", images(32))
    assert answer["event"] == "updated"
    assert answer["health"]["pulled_back"] == 1
    told = engine.describe("harmed")
    assert (told["verdict"], told["course"][0]["verdict"]) == ("suspect", "suspect")
    assert "learning rate is too high" in told["reason"]


def test_a_request_that_comes_again_is_answered_as_before_and_not_learnt_twice(
    service: Service, engines: Engines
) -> None:
    engine = engines(service)
    first = asked(engine, "one", "key", images())
    assert asked(engine, "one", "key", images()) == first
    assert engine.describe("one")["batches"] == 1
    engine.close()
    again = engines(service)  # after the death of a replica, from the store
    assert asked(again, "one", "key", images()) == first
    assert again.describe("one")["batches"] == 1


def test_requests_that_wait_together_are_one_batch(service: Service, engines: Engines) -> None:
    engine = engines(replace(service, batch_size=8, wait=SECONDS))
    futures = [engine.submit("one", str(n), images(seed=n)) for n in (0, 1)]
    answers = [future.result(SECONDS) for future in futures]
    assert [answer["batch"] for answer in answers] == [1, 1]
    assert [answer["predictions"][0]["image"] for answer in answers] == ["0-0", "1-0"]
    assert engine.describe("one")["samples"] == 8


def test_all_is_on_the_disk_before_it_is_acknowledged(service: Service, engines: Engines) -> None:
    engine = engines(service)
    asked(engine, "one", "key", images())
    (notes,) = dict(engine.streams.store.notes()).values()
    assert notes["summary"]["batches"] == 1


def test_what_cannot_be_saved_did_not_happen(
    service: Service, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines(service)
    asked(engine, "one", "0", images())
    with monkeypatch.context() as patch:

        def full(self: StreamStore, stream: object) -> None:
            raise OSError("No space left on device")

        with engine.streams.held("one") as stream:
            before = stream.session.state_dict()
        patch.setattr(StreamStore, "write", full)
        with pytest.raises(Refused, match="No space left") as refused:
            asked(engine, "one", "1", images(seed=1))
        assert refused.value.status == 507
        assert engine.describe("one")["batches"] == 1
        with engine.streams.held("one") as stream:
            after = stream.session.state_dict()
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)  # the watch's too
    answer = asked(engine, "one", "1", images(seed=1))
    assert answer["batch"] == 2


def test_a_damaged_file_is_told_to_those_who_ask_for_its_stream(
    service: Service, engines: Engines
) -> None:
    engine = engines(service)
    asked(engine, "good", "0", images())
    asked(engine, "bad", "0", images())
    file = engine.streams.store.file("bad")
    engine.close()
    file.write_bytes(file.read_bytes()[:-9])
    again = engines(service)
    assert again.describe("good")["batches"] == 1
    with pytest.raises(Refused, match="is not whole") as refused:
        asked(again, "bad", "1", images())
    assert refused.value.status == 409


def test_what_the_network_cannot_take_is_refused_and_touches_nothing(
    service: Service, engines: Engines
) -> None:
    engine = engines(service)
    wrong = Images(("a",), np.zeros((1, 5, 8, 8), np.float32))
    with pytest.raises(Refused, match="the network cannot take") as refused:
        asked(engine, "one", "key", wrong)
    assert refused.value.status == 422
    with pytest.raises(Refused) as missing:
        engine.describe("one")
    assert missing.value.status == 404
    assert engine.streams.names() == []


def test_a_network_may_refuse_images_in_its_own_words(
    service: Service, engines: Engines, tmp_path: Path
) -> None:
    """Many assert the size that they were made for."""
    network = (tmp_path / "network.py").read_text().replace("def build", "def inner")
    (tmp_path / "network.py").write_text(
        network
        + """
class Sized(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = inner()

    def forward(self, x):
        assert x.shape[-1] == 8, "images of 8 pixels"
        return self.network(x)

build = Sized
"""
    )
    engine = engines(service)
    asked(engine, "one", "0", images())
    wrong = Images(("a",), np.zeros((1, 9, 9, 3), np.uint8))
    with pytest.raises(Refused, match="images of 8 pixels") as refused:
        asked(engine, "one", "1", wrong)
    assert refused.value.status == 422
    assert asked(engine, "one", "2", images())["batch"] == 2


def test_images_that_are_not_finite_are_left_out_and_said_so(
    service: Service, engines: Engines
) -> None:
    engine = engines(service)
    values = np.random.default_rng(0).random((3, 3, 8, 8), np.float32)
    values[1] = np.nan
    rows = asked(engine, "one", "key", Images(("a", "b", "c"), values))["predictions"]
    assert [row["prediction"] is None for row in rows] == [False, True, False]
    assert "not finite" in rows[1]["reason"]
    assert engine.describe("one")["left_out"] == 1
    fine = torch.from_numpy(values[[0, 2]])
    source = engine.adapter.source_prediction(fine).argmax(-1).tolist()
    assert [row["source_prediction"] for row in rows] == [source[0], None, source[1]]
    values[:] = np.nan  # nothing is compared, and the last comparison is not told again
    rows = asked(engine, "one", "next", Images(("a", "b", "c"), values))["predictions"]
    assert [row["source_prediction"] for row in rows] == [None] * 3


def test_there_are_no_more_streams_than_there_may_be(service: Service, engines: Engines) -> None:
    engine = engines(replace(service, limits=Limits(streams=1)))
    asked(engine, "one", "key", images())
    with pytest.raises(Refused, match="at most 1 streams") as refused:
        engine.submit("two", "key", images())
    assert refused.value.status == 429
    asked(engine, "one", "next", images())


def test_new_names_that_come_together_are_no_more_than_there_may_be(
    service: Service, engines: Engines
) -> None:
    engine = engines(replace(service, limits=Limits(streams=2)))
    asked(engine, "one", "key", images())
    with engine.streams.held("one"):  # nobody is answered meanwhile
        first = engine.submit("one", "next", images())
        others = [engine.submit(f"new-{number}", "key", images()) for number in range(3)]
    statuses = []
    for future in (first, *others):
        try:
            future.result(SECONDS)
            statuses.append(200)
        except Refused as refused:
            statuses.append(refused.status)
    assert sorted(statuses) == [200, 200, 429, 429]
    assert len(engine.streams) == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray Serve uses what pydantic calls old
def test_a_request_that_is_not_answered_in_time_is_told_so(service: Service) -> None:
    pytest.importorskip("ray", reason="needs ray: pip install 'fenchel[serve]'")
    from fenchel.serve.deployment import RayBackend

    backend = RayBackend(replace(service, limits=Limits(seconds=0.05)))

    async def silent(*request: object) -> Any:
        await asyncio.sleep(60)

    backend._sent = silent  # type: ignore[method-assign]
    with pytest.raises(Refused, match="no answer within") as refused:
        asyncio.run(backend.describe("one"))
    assert refused.value.status == 503
    assert asyncio.run(backend.overview(5, course=True)) == [None]


def test_a_request_that_kills_its_process_is_not_sent_for_ever(service: Service) -> None:
    of_ray = pytest.importorskip("ray.exceptions", reason="needs ray: pip install 'fenchel[serve]'")
    from fenchel.serve.deployment import RayBackend

    backend, sent = RayBackend(service), []

    async def dying(*request: object) -> Any:
        sent.append(request)
        raise of_ray.ActorDiedError

    backend._sent = dying  # type: ignore[method-assign]
    with pytest.raises(Refused, match="died 3 times") as refused:
        asyncio.run(backend.predict("one", "key", images()))
    assert refused.value.status == 503
    assert len(sent) == 3


def test_a_reset_that_comes_again_resets_nothing(service: Service, engines: Engines) -> None:
    engine = engines(service)
    asked(engine, "one", "0", images())
    told = engine.reset("one", "key")
    asked(engine, "one", "key", images(seed=1))  # a key of another call
    learnt = engine.describe("one")
    assert (learnt["resets"], learnt["batches"]) == (1, 2)
    assert engine.reset("one", "key") == told
    engine.close()
    again = engines(service)
    assert again.reset("one", "key") == told
    assert again.describe("one")["resets"] == 1
    assert again.reset("one", "another")["resets"] == 2


def test_a_reset_that_cannot_be_saved_did_not_happen(
    service: Service, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines(service)
    asked(engine, "one", "0", images(64))

    def full(self: StreamStore, stream: object) -> None:
        raise OSError("No space left on device")

    with engine.streams.held("one") as stream:
        before = stream.session.state_dict()
    with monkeypatch.context() as patch:
        patch.setattr(StreamStore, "write", full)
        with pytest.raises(Refused, match="No space left"):
            engine.reset("one", "key")
    with engine.streams.held("one") as stream:
        after = stream.session.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert engine.reset("one", "key")["resets"] == 1


def test_a_reset_keeps_counters_and_answers(service: Service, engines: Engines) -> None:
    engine = engines(service)
    first = asked(engine, "one", "0", images())
    told = engine.reset("one", "again")
    assert (told["resets"], told["batches"]) == (1, 1)
    assert asked(engine, "one", "0", images()) == first
    again = asked(engine, "one", "1", images())
    confidences = [[row["confidence"] for row in each["predictions"]] for each in (first, again)]
    assert confidences[0] == confidences[1]


def test_the_course_covers_the_whole_stream_with_few_points(
    service: Service, engines: Engines
) -> None:
    engine = engines(replace(service, save_every=1000))
    for number in range(POINTS + 10):
        asked(engine, "one", str(number), images(2, seed=number))
    told = engine.describe("one")
    batches = [point["batch"] for point in told["course"]]
    assert len(batches) <= POINTS
    assert batches[0] <= 2
    assert batches[-1] >= POINTS + 9
    (row,) = engine.overview(5, course=True)["streams"]
    assert row["course"] == told["course"]


def test_the_streams_that_were_used_last_are_shown_first_after_a_restart_too(
    service: Service, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines(service)
    names = ["one", "two", "three", "two", "four", "one"]
    for number, name in enumerate(names):
        asked(engine, name, str(number), images())
    shown = [row["stream"] for row in engine.overview()["streams"]]
    assert shown == ["one", "four", "two", "three"]
    engine.close()
    engine = engines(service)
    assert [row["stream"] for row in engine.overview()["streams"]] == shown
    engine.close()
    monkeypatch.setattr("fenchel.serve.engine.SHOWN", 2)  # no more files are read
    engine = engines(service)
    assert [row["stream"] for row in engine.overview()["streams"]] == shown[:2]
    assert engine.overview()["known"] == 4
    assert engine.describe("three")["batches"] == 1


def test_a_record_comes_back_as_it_was(service: Service, engines: Engines) -> None:
    engine = engines(service)
    for number in range(3):
        asked(engine, "one", str(number), images(30, seed=number))
    with engine.streams.held("one") as stream:
        notes = stream.notes
    assert Record.from_plain(notes).to_plain() == notes
    assert len(notes["course"]) == 3


def test_replicas_share_the_names_and_the_store(service: Service, engines: Engines) -> None:
    two = replace(service, replicas=2)
    names = [f"s-{number}" for number in range(20)]
    shares = [[name for name in names if two.replica_of(name) == number] for number in (0, 1)]
    assert all(len(share) > 3 for share in shares)
    first, second = engines(two, 0), engines(two, 1)
    asked(first, shares[0][0], "key", images())
    asked(second, shares[1][0], "key", images())
    first.close()
    first = engines(two, 0)  # started again, it knows its own streams alone
    assert first.streams.names() == [shares[0][0]]
    assert [row["stream"] for row in first.overview()["streams"]] == [shares[0][0]]
    with pytest.raises(Refused, match="belongs to another process"):
        asked(first, shares[1][0], "next", images())
    first.close()
    second.close()
    alone = engines(service)  # another number of replicas goes on with all of them
    assert set(alone.streams.names()) == {shares[0][0], shares[1][0]}
    assert alone.describe(shares[1][0])["batches"] == 1


def test_no_file_lies_outside_the_store(service: Service, engines: Engines, tmp_path: Path) -> None:
    before = {path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts}
    asked(engines(service), "..", "key", images())
    after = {path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts} - before
    assert all(path == service.store or service.store in path.parents for path in after)
