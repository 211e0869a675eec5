"""Clients that hammer a service while its replicas are killed, and what must hold afterwards."""

from __future__ import annotations

import http.client
import io
import json
import os
import random
import re
import signal
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fenchel.serve.deployment import APPLICATION, Running

SECONDS, PATIENCE = 120.0, 0.3


def ask(
    running: Running, method: str, target: str, body: bytes = b"", **headers: str
) -> tuple[int, Any]:
    """One request over a connection of its own: the status, and the JSON or the text that came."""
    service = running.service
    connection = http.client.HTTPConnection(service.host, service.port, timeout=SECONDS)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, target, body, named)
        answer = connection.getresponse()
        content = answer.read()
        is_json = content and "json" in (answer.getheader("content-type") or "")
        return answer.status, json.loads(content) if is_json else content.decode()
    finally:
        connection.close()


def send_bytes(running: Running, content: bytes, seconds: float = 30.0) -> list[int]:
    """The statuses that come for these bytes. When the sender ends, so does the service, and in time."""
    service, answer = running.service, b""
    with socket.create_connection((service.host, service.port), seconds) as connection:
        try:
            connection.sendall(content)
            connection.settimeout(PATIENCE)
            try:
                while part := connection.recv(65536):
                    answer += part
            except TimeoutError:  # it waits for more
                connection.settimeout(seconds)
                connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(65536):
                    answer += part
        except (ConnectionError, BrokenPipeError):
            pass  # it had heard enough
    return [int(status) for status in re.findall(rb"^HTTP/1\.[01] (\d{3})", answer, re.M)]


@dataclass
class Told:
    """What clients were told: for every stream the images of each request that was acknowledged."""

    acknowledged: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    wrong: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    kills: int = 0


def hammer(
    running: Running,
    *,
    clients: int,
    streams: int,
    seconds: float,
    kill_every: float,
) -> Told:
    """Send requests from many threads for some seconds; every one is sent until it is acknowledged."""
    told, end = Told(), time.monotonic() + seconds
    threads = [
        threading.Thread(target=_client, args=(running, told, number, streams, end))
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    killer = random.Random(0)
    while time.monotonic() + kill_every < end:
        time.sleep(kill_every)
        number = killer.randrange(running.service.replicas)
        if (process := process_of(running, number)) is not None:
            os.kill(process, signal.SIGKILL)
            told.kills += 1
    for thread in threads:
        thread.join()
    return told


def process_of(running: Running, number: int) -> int | None:
    """The process of a replica, as the replica itself tells it; None while it starts."""
    from ray import serve

    handle = serve.get_deployment_handle(f"streams-{number}", app_name=APPLICATION)
    try:
        _, overview = handle.overview.remote(1, False).result(timeout_s=3)
    except Exception:
        return None
    process: int = overview["process"]
    return process


def _client(running: Running, told: Told, number: int, streams: int, end: float) -> None:
    draw = random.Random(number)
    count = 0
    while time.monotonic() < end:
        stream, size = f"s-{draw.randrange(streams)}", draw.choice([1, 2, 4])
        key = f"{number}-{count}"
        count += 1
        names = [f"{key}-{place}" for place in range(size)]
        body = _form(names, draw.getrandbits(32))
        began = time.monotonic()
        answer = _until_acknowledged(
            told,
            lambda stream=stream, key=key, body=body: ask(  # type: ignore[misc]
                running,
                "POST",
                f"/v1/streams/{stream}/predict",
                body,
                Content_Type="multipart/form-data; boundary=edge",
                Idempotency_Key=key,
            ),
        )
        told.seconds.append(time.monotonic() - began)
        said = answer and (
            answer["stream"],
            answer["key"],
            [p["image"] for p in answer["predictions"]],
        )
        if said != (stream, key, names):
            told.wrong.append(f"{(stream, key, names)} was answered by {said}")
        told.acknowledged[stream][key] = size


def _until_acknowledged(told: Told, send: Callable[[], tuple[int, Any]]) -> Any:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            status, answer = send()
        except (OSError, http.client.HTTPException):
            status, answer = 0, None  # the connection broke: nobody knows whether it was learnt
        told.statuses[status] += 1
        if status == 200:
            return answer
        if status not in (0, 503):
            told.wrong.append(f"{status}: {answer}")
            return None
        time.sleep(0.2)
    told.wrong.append("never acknowledged")
    return None


def _form(names: list[str], seed: int) -> bytes:
    from PIL import Image

    parts = []
    for place, name in enumerate(names):
        values = np.random.default_rng(seed + place).integers(0, 256, (8, 8, 3), np.uint8)
        file = io.BytesIO()
        Image.fromarray(values).save(file, "PNG")
        head = f'--edge\r\nContent-Disposition: form-data; name="images"; filename="{name}"\r\n\r\n'
        parts.append(head.encode() + file.getvalue() + b"\r\n")
    return b"".join(parts) + b"--edge--\r\n"


def faults(running: Running, told: Told) -> list[str]:
    """What does not hold: answers that were lost or crossed, counters that differ from what was told."""
    found = list(told.wrong)
    for stream, requests in told.acknowledged.items():
        status, now = ask(running, "GET", f"/v1/streams/{stream}")
        images, batches = sum(requests.values()), len(requests)
        if status != 200 or now["samples"] != images or not 0 < now["batches"] <= batches:
            found.append(
                f"{stream}: {images} images in {batches} requests were told, it says {now}"
            )
    return found
