"""The service over HTTP: what it answers, what it refuses, and that nothing makes it fall over."""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from fuzzed_requests import fuzzed
from PIL import Image
from served_network import CLASSES, Client, LocalBackend, client_of, npy, pixels

from fenchel.serve.engine import Engine
from fenchel.serve.limits import Limits
from fenchel.serve.service import Service, token_from

pytest.importorskip("fastapi", reason="needs fastapi: pip install 'fenchel[serve]'")

from fenchel.serve.app import make_app

NPY = {"Content-Type": "application/x-npy"}
PREDICT = "/v1/streams/north/predict"
TOKEN = "a-token-of-some-length"


def png(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(values).save(file, "PNG")
    return file.getvalue()


def form(files: dict[str, bytes]) -> tuple[bytes, dict[str, str]]:
    parts = [
        b'--edge\r\nContent-Disposition: form-data; name="images"; filename="%s"\r\n'
        b"Content-Type: image/png\r\n\r\n%s\r\n" % (name.encode(), content)
        for name, content in files.items()
    ]
    return b"".join(parts) + b"--edge--\r\n", {"Content-Type": "multipart/form-data; boundary=edge"}


def test_arrays_files_and_a_picture_are_the_same_images(client: Client) -> None:
    given = pixels(3)
    array = client("POST", "/v1/streams/array/predict", npy(given), headers=NPY)
    body, headers = form({f"{n}.png": png(image) for n, image in enumerate(given)})
    files = client("POST", "/v1/streams/files/predict", body, headers=headers)
    assert (array.status, files.status) == (200, 200), files.body
    rows = [answer.json()["predictions"] for answer in (array, files)]
    assert [row["image"] for row in rows[1]] == ["0.png", "1.png", "2.png"]
    for key in ("prediction", "name", "confidence", "source_prediction", "source_name"):
        assert [row[key] for row in rows[0]] == [row[key] for row in rows[1]]
    assert {row["name"] for row in rows[0]} <= set(CLASSES)
    one = client(
        "POST", "/v1/streams/one/predict", png(given[0]), headers={"Content-Type": "image/png"}
    )
    sure = one.json()["predictions"][0]["source_confidence"]
    assert sure == pytest.approx(rows[0][0]["source_confidence"])


def test_health_counters_reset_and_overview(client: Client) -> None:
    assert client("GET", "/v1/streams/north").status == 404
    for seed in range(3):
        client("POST", PREDICT, npy(pixels(seed=seed)), headers=NPY)
    told = client("GET", "/v1/streams/north").json()
    assert (told["batches"], told["samples"], told["updates"], told["resets"]) == (3, 12, 3, 0)
    assert [point["batch"] for point in told["course"]] == [1, 2, 3]
    assert client("POST", "/v1/streams/north/reset").json()["resets"] == 1
    whole = client("GET", "/v1/streams?limit=5").json()
    assert [row["stream"] for row in whole["streams"]] == ["north"]
    assert (whole["known"], whole["replicas"]) == (1, [True, False])


def test_a_key_makes_a_request_safe_to_send_again(client: Client) -> None:
    headers = {**NPY, "Idempotency-Key": "frame-17"}
    first = client("POST", PREDICT, npy(pixels()), headers=headers).json()
    assert client("POST", PREDICT, npy(pixels()), headers=headers).json() == first
    assert client("GET", "/v1/streams/north").json()["batches"] == 1


def test_metrics_are_what_prometheus_reads(client: Client) -> None:
    client("POST", PREDICT, npy(pixels()), headers=NPY)
    answer = client("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.body.decode().splitlines()
    line = re.compile(r'[a-z_]+\{([a-z]+="[A-Za-z0-9._-]*",?)+\} \d+')
    assert all(each.startswith("# ") or line.fullmatch(each) for each in lines)
    assert 'fenchel_stream_samples_total{stream="north"} 4' in lines
    assert 'fenchel_stream_verdict{stream="north",verdict="healthy"} 1' in lines
    assert 'fenchel_replica_up{replica="1"} 0' in lines
    assert 'fenchel_requests_total{status="200"} 1' in lines
    parser = pytest.importorskip("prometheus_client.parser", reason="comes with ray[serve]")
    parsed = {
        family.name: family for family in parser.text_string_to_metric_families("\n".join(lines))
    }
    assert parsed["fenchel_stream_samples"].type == "counter"
    assert [sample.value for sample in parsed["fenchel_stream_samples"].samples] == [4.0]
    families = [each.split()[2] for each in lines if each.startswith("# TYPE")]
    assert len(families) == len(set(families))


def test_the_description_names_every_call_and_the_page_needs_nothing_from_elsewhere(
    client: Client,
) -> None:
    described = client("GET", "/openapi.json").json()
    assert set(described["paths"]) == {
        "/v1/streams",
        "/v1/streams/{name}",
        "/v1/streams/{name}/predict",
        "/v1/streams/{name}/reset",
        "/metrics",
        "/healthz",
    }
    body = described["paths"]["/v1/streams/{name}/predict"]["post"]["requestBody"]["content"]
    assert {"multipart/form-data", "application/x-npy", "image/png"} <= set(body)
    page = client("GET", "/docs").body.decode()
    assert all(path in page for path in described["paths"])
    assert "://" not in page.replace("http://www.w3.org", "")


def test_the_token_guards_all_that_tells_of_streams(
    service: Service, engines: Callable[..., Engine], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    closed = replace(service, token=token_from(tmp_path / "token"))
    client = client_of(closed, engines(closed))
    for method, target in (
        *(("POST", PREDICT), ("GET", "/v1/streams/north"), ("GET", "/v1/streams")),
        *(("POST", "/v1/streams/north/reset"), ("GET", "/metrics"), ("GET", "/nothing")),
    ):
        for sent in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
            answer = client(method, target, headers=sent)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert client("POST", PREDICT, npy(pixels()), headers={**NPY, **right}).status == 200
    assert client("GET", "/v1/streams/north", headers=right).status == 200
    assert [client("GET", each).status for each in ("/", "/docs", "/healthz")] == [200] * 3
    (tmp_path / "token").write_text("short")
    with pytest.raises(ValueError, match="at least 16"):
        token_from(tmp_path / "token")


def test_pages_from_elsewhere_are_not_served(client: Client) -> None:
    assert client("GET", "/v1/streams", headers={"Origin": "http://evil"}).status == 403
    assert client("GET", "/v1/streams", headers={"Origin": "http://here"}).status == 200


def header_of(shape: object) -> bytes:
    """An array that is all header."""
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(100)


@pytest.mark.parametrize(
    "name", ["a%2Fb", "..%2F..%2Fetc", "%00", "%0a", "a%20b", "%C3%A4", "x" * 101, "x" * 5000, ""]
)
def test_names_that_are_none_are_refused_for_every_call(
    client: Client, service: Service, name: str
) -> None:
    for method, target in (
        ("POST", f"/v1/streams/{name}/predict"),
        ("POST", f"/v1/streams/{name}/reset"),
        ("GET", f"/v1/streams/{name}/"),
    ):
        answer = client(method, target, npy(pixels()), headers=NPY)
        assert answer.status in (307, 404, 405, 422), (target, answer.body)
    assert list(service.store.glob("*.safetensors")) == []


@pytest.mark.parametrize("value", [3e38, -3e38, 1e-42, 1e300, np.nan])
def test_numbers_at_the_end_of_their_range_are_answered(client: Client, value: float) -> None:
    given = np.full((4, 3, 8, 8), value)
    given[0] = 0.5
    for _ in range(2):
        answer = client("POST", PREDICT, npy(given), headers=NPY)
        assert answer.status == 200, answer.body
    for target in ("/v1/streams", "/v1/streams/north", "/metrics"):
        answer = client("GET", target)
        assert answer.status == 200
        assert b"NaN" not in answer.body
    assert client("POST", PREDICT, npy(pixels()), headers=NPY).json()["predictions"][0]["name"]


def test_resets_and_predictions_at_once_leave_counters_that_add_up(client: Client) -> None:
    client("POST", PREDICT, npy(pixels()), headers=NPY)
    calls = [("POST", PREDICT), ("POST", "/v1/streams/north/reset"), ("GET", "/v1/streams/north")]

    def call(number: int) -> int:
        method, target = calls[number % 3]
        return client(method, target, npy(pixels(seed=number)), headers=NPY).status

    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(call, range(30)))
    assert statuses == [200] * 30
    told = client("GET", "/v1/streams/north").json()
    assert (told["samples"], told["resets"]) == (4 * 11, 10)


def test_more_requests_than_may_wait_are_refused_and_told_when_to_come_again(
    service: Service, engines: Callable[..., Engine]
) -> None:
    bounded = replace(service, limits=Limits(waiting=2), batch_size=4)  # of one request each
    engine = engines(bounded)
    client = client_of(bounded, engine)
    client("POST", PREDICT, npy(pixels()), headers=NPY)
    with ThreadPoolExecutor(8) as pool:
        with engine.streams.held("north"):  # one is at work and two may wait
            calls = [
                pool.submit(client, "POST", PREDICT, npy(pixels(seed=seed)), headers=NPY)
                for seed in range(8)
            ]
            refused = [call.result(60) for call in islice(as_completed(calls), 5)]
            assert client("POST", "/v1/streams/south/predict", b"x", headers=NPY).status == 422
        answers = [call.result(60) for call in calls]
    assert {answer.status for answer in refused} == {503}
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    assert {answer.status for answer in answers} == {200, 503}
    served = sum(answer.status == 200 for answer in answers)
    assert served in (2, 3)  # all may have come before the first was taken up
    assert client("GET", "/v1/streams/north").json()["samples"] == 4 * (1 + served)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("127.0.0.1", 200),
        ("[::1]:8000", 200),
        ("10.0.0.7:8000", 200),
        ("evil.example:8000", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost@evil.example", 403),
        ("[::1", 403),
        ("", 403),
    ],
)
def test_without_a_token_no_other_name_leads_to_this_machine(
    service: Service, engines: Callable[..., Engine], host: str, status: int
) -> None:
    """A page of evil.example, once that name leads to 127.0.0.1, is of one origin with the service."""
    engine = engines(service)
    shut = Client(make_app(LocalBackend(engine), service.reader(), only_here=True), host)
    for target in ("/v1/streams", "/", "/metrics"):
        assert shut("GET", target).status == status
    told = make_app(LocalBackend(engine), service.reader(), token=TOKEN, only_here=True)
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert Client(told, host)("GET", "/v1/streams", headers=right).status == 200


@pytest.mark.parametrize(
    ("limits", "body", "headers", "status"),
    [
        (Limits(request_bytes=100), npy(pixels()), NPY, 413),
        (Limits(images=3), npy(pixels()), NPY, 413),
        (Limits(pixels=63), png(pixels()[0]), {"Content-Type": "image/png"}, 413),
        (Limits(pixels=4 * 64 - 1), npy(pixels()), NPY, 413),
        (Limits(pixels=63), npy(np.zeros((1, 3, 8, 8), np.float32)), NPY, 413),
        (Limits(images=1), *form({"a": png(pixels()[0]), "b": png(pixels()[1])}), 413),
        (Limits(), b"", NPY, 400),
        (Limits(), b"no array", NPY, 422),
        (Limits(), npy(np.zeros((2, 5, 8, 8), np.float32)), NPY, 422),
        (Limits(), npy(np.array(["x"], object)), NPY, 422),
        (Limits(), b"%!PS-Adobe-3.0 EPSF-3.0", {"Content-Type": "image/png"}, 422),
        (Limits(), b"x", {"Content-Type": "application/json"}, 415),
        (Limits(), b"x", {"Content-Type": "multipart/form-data"}, 400),
        (Limits(), npy(pixels()), {**NPY, "Idempotency-Key": "a/b"}, 400),
        (Limits(), gzip.compress(npy(pixels())), {**NPY, "Content-Encoding": "gzip"}, 415),
        (Limits(), header_of((10**12, 8, 8, 3)), NPY, 422),
        (Limits(), header_of((10**18, 0, 8, 3)), NPY, 422),
        (Limits(), header_of((-1, 8, 8, 3)), NPY, 422),
        (Limits(), header_of("(" * 5000), NPY, 422),
    ],
    ids=[
        *(
            "bytes",
            "images",
            "pixels",
            "array-pixels",
            "float-pixels",
            "files",
            "empty",
            "garbage",
            "channels",
            "pickle",
            "eps",
        ),
        *("json", "no-boundary", "key", "gzip", "huge", "nothing-of-many", "negative", "nested"),
    ],
)
def test_what_is_refused_and_how(
    service: Service,
    engines: Callable[..., Engine],
    limits: Limits,
    body: bytes,
    headers: dict[str, str],
    status: int,
) -> None:
    bounded = replace(service, limits=limits)
    client = client_of(bounded, engines(bounded))
    answer = client("POST", PREDICT, body, headers=headers)
    assert answer.status == status, answer.body
    assert answer.json()["error"].endswith(".")
    assert client("GET", "/v1/streams").json()["known"] == 0


def test_a_body_that_is_longer_than_it_says_is_cut_off(
    service: Service, engines: Callable[..., Engine]
) -> None:
    bounded = replace(service, limits=Limits(request_bytes=1000))
    client = client_of(bounded, engines(bounded))
    answer = client("POST", PREDICT, headers=NPY, chunks=[b"x" * 400] * 5)
    assert answer.status == 413


def test_a_body_that_never_ends_is_given_up(
    service: Service, engines: Callable[..., Engine]
) -> None:
    bounded = replace(service, limits=Limits(seconds=0.2))
    client = client_of(bounded, engines(bounded))
    headers = [(b"content-type", b"application/x-npy"), (b"content-length", b"999")]
    answer = client("POST", PREDICT, headers=headers, chunks=[b"", b""])
    assert answer.status in (400, 408)


def test_fuzzed_requests_never_break_the_service_or_leave_its_store(
    client: Client, service: Service, tmp_path: Path
) -> None:
    """The full size, ten thousand against the real service: full_size.py."""
    before = {path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts}
    statuses = set()
    for seed in range(400):
        request = fuzzed(seed)
        answer = client(request.method, request.target, request.body, headers=request.headers)
        assert answer.status < 500, (seed, request, answer.body)
        statuses.add(answer.status)
    assert {200, 400, 404, 405, 413, 415, 422} <= statuses
    after = {path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts} - before
    assert all(path == service.store or service.store in path.parents for path in after)
    assert client("GET", "/healthz").json() == {"status": "ok"}
