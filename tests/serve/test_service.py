"""The service on Ray Serve: real replicas, real HTTP, real deaths."""

from __future__ import annotations

import io
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fuzzed_requests import fuzzed, malformed
from hammered_service import ask, faults, hammer, process_of, send_bytes
from served_network import NETWORK

from fenchel.predict.opening import Adaptation
from fenchel.serve.deployment import Running, start
from fenchel.serve.limits import Limits
from fenchel.serve.service import Service

# Ray Serve uses what its own libraries call old, and leaves sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
NPY = "application/x-npy"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, one_cluster_at_a_time: None
) -> Iterator[Running]:
    """Two replicas on two states of memory each; started once for all tests of the module."""
    pytest.importorskip("ray")
    pytest.importorskip("fastapi", reason="needs fastapi: pip install 'fenchel[serve]'")
    folder = tmp_path_factory.mktemp("service")
    (folder / "network.py").write_text(NETWORK)
    service = Service(
        adaptation=Adaptation(
            model=f"{folder / 'network.py'}:build",
            trained_with="cross-entropy",
            learning_rate=0.05,
            statistics="source",
        ),
        store=folder / "store",
        replicas=2,
        resident=2,
        limits=Limits(seconds=60.0),
        port=free_port(),
    )
    started = start(service)
    yield started
    started.stop()


def images(seed: int = 0, count: int = 4) -> bytes:
    file = io.BytesIO()
    np.save(file, np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), np.uint8))
    return file.getvalue()


def test_streams_go_on_after_the_death_of_their_replica(running: Running) -> None:
    service = running.service
    name = next(n for n in map("death-{}".format, range(9)) if service.replica_of(n) == 0)
    target = f"/v1/streams/{name}/predict"
    sent = [images(seed, count=64) for seed in (0, 1)]  # as many as a full step takes
    first = ask(running, "POST", target, sent[0], Content_Type=NPY, Idempotency_Key="first")
    assert first[0] == 200, first
    process = process_of(running, 0)
    assert process is not None
    os.kill(process, signal.SIGKILL)
    # Sent again, it is known; sent anew, it waits for the replica, and the stream goes on.
    again = ask(running, "POST", target, sent[0], Content_Type=NPY, Idempotency_Key="first")
    assert again == first
    status, answer = ask(running, "POST", target, sent[1], Content_Type=NPY)
    assert (status, answer["batch"]) == (200, 2)
    alone = replace(service, store=service.store.parent / "alone").engine()
    try:
        from fenchel.serve.reading import Images

        numbers = tuple(map(str, range(64)))
        given = [Images(numbers, np.load(io.BytesIO(each))) for each in sent]
        for number, each in enumerate(given):
            expected = alone.submit(name, str(number), each).result(60)
        fresh = alone.submit("fresh", "0", given[1]).result(60)
    finally:
        alone.close()
    # Two processes may round differently; what the first batch taught is far more than that.
    found, wanted, unlearnt = (
        np.array([row["confidence"] for row in told["predictions"]])
        for told in (answer, expected, fresh)
    )
    assert np.abs(found - wanted).max() < 1e-6
    assert np.abs(found - unlearnt).max() > 2e-5


def test_no_answer_is_lost_or_crossed_while_replicas_die(running: Running) -> None:
    """The full size, 32 clients for a minute: full_size.py."""
    told = hammer(running, clients=6, streams=8, seconds=5.0, kill_every=2.0)
    assert faults(running, told) == []
    assert told.kills >= 1
    assert sum(len(requests) for requests in told.acknowledged.values()) > 20


def test_fuzzed_requests_reach_the_real_service(running: Running) -> None:
    before = set(running.service.store.parent.iterdir())
    for seed in range(60):
        request = fuzzed(seed)
        headers = {name: value for name, value in request.headers.items() if value.isascii()}
        status, _ = ask(running, request.method, request.target, request.body, **headers)
        assert status < 500, (seed, request)
    for seed in range(60):
        statuses = send_bytes(running, malformed(seed))
        assert all(status < 500 for status in statuses), (seed, malformed(seed))
    assert set(running.service.store.parent.iterdir()) - before <= {
        running.service.store.parent / "__pycache__"
    }


def test_the_rest_of_the_service_answers_too(running: Running) -> None:
    ask(running, "POST", "/v1/streams/rest/predict", images(), Content_Type=NPY)
    assert ask(running, "POST", "/v1/streams/rest/reset")[1]["resets"] == 1
    status, text = ask(running, "GET", "/metrics")
    assert status == 200
    assert 'fenchel_stream_batches_total{stream="rest"} 1' in text
    assert "fenchel_replica_up" in text
    assert ask(running, "GET", "/metrics", Host="evil.example")[0] == 403
    assert ask(running, "GET", "/docs")[0] == ask(running, "GET", "/")[0] == 200
    with pytest.raises(ValueError, match="belongs to one service at a time"):
        start(running.service)


def test_only_this_machine_is_served(running: Running) -> None:
    """Neither the service nor Ray, to whose ports one may send code, listens at other addresses."""
    import ray

    of_ray, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    assert of_ray == "127.0.0.1"
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in others - {"127.0.0.1"}:
        if address.startswith("127."):
            continue
        for each in (running.service.port, int(port)):
            with pytest.raises(OSError):
                socket.create_connection((str(address), each), 2).close()
    assert Path(running.service.store / "service.lock").exists()
