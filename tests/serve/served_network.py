"""A small network to serve, an application without Ray around it, and what asks it."""

from __future__ import annotations

import asyncio
import io
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pytest

from fenchel.serve.engine import Engine
from fenchel.serve.reading import Images
from fenchel.serve.service import Service

NETWORK = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(128, 4),
    )
"""
CLASSES = ("cat", "dog", "owl", "<b>")


class LocalBackend:
    """One engine in this process in the place of Ray's replicas."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def predict(self, name: str, key: str, images: Images) -> dict[str, Any]:
        return await asyncio.wrap_future(self.engine.submit(name, key, images))

    async def describe(self, name: str) -> dict[str, Any]:
        return self.engine.describe(name)

    async def reset(self, name: str, key: str) -> dict[str, Any]:
        return self.engine.reset(name, key)

    async def overview(self, shown: int, *, course: bool) -> list[dict[str, Any] | None]:
        return [self.engine.overview(shown, course=course), None]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Client:
    """Asks an ASGI application as a server would, any bytes allowed."""

    app: Any
    host: str = "here"

    def __call__(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        headers: dict[str, str] | list[tuple[bytes, bytes]] | None = None,
        chunks: list[bytes] | None = None,
    ) -> Answer:
        path, _, query = target.partition("?")
        given = headers if isinstance(headers, list) else _encoded(headers or {})
        if chunks is None and not isinstance(headers, list):
            given = [*given, (b"content-length", str(len(body)).encode())]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path, errors="replace"),
            "raw_path": path.encode("utf-8", "replace"),
            "query_string": query.encode("utf-8", "replace"),
            "root_path": "",
            "headers": [(b"host", self.host.encode()), *given],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        with ThreadPoolExecutor(1) as pool:  # the browser's tests have a loop in their own thread
            return pool.submit(asyncio.run, self._asked(scope, chunks or [body])).result()

    async def _asked(self, scope: dict[str, Any], chunks: list[bytes]) -> Answer:
        waiting = list(chunks)
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if waiting:
                chunk = waiting.pop(0)
                return {"type": "http.request", "body": chunk, "more_body": bool(waiting)}
            await asyncio.sleep(3600)
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        start = next(message for message in sent if message["type"] == "http.response.start")
        body = b"".join(message.get("body", b"") for message in sent)
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], headers, body)


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


def client_of(service: Service, engine: Engine) -> Client:
    pytest.importorskip("fastapi", reason="needs fastapi: pip install 'fenchel[serve]'")
    from fenchel.serve.app import make_app

    return Client(make_app(LocalBackend(engine), service.reader(), token=service.token))


def pixels(count: int = 4, seed: int = 0, side: int = 8) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), np.uint8)


def npy(values: npt.NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()
