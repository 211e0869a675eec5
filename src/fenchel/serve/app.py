"""The service as an ASGI application: what is asked over HTTP, checked, bounded and passed on."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from fenchel._version import __version__
from fenchel.serve import metrics, openapi
from fenchel.serve.limits import Limits, Refused
from fenchel.serve.page import api_page, streams_page
from fenchel.serve.reading import ImageReader, Images
from fenchel.streams import check_name

MOST_SHOWN, MOST_COUNTED = 200, 1000
"""Streams of a page, and of the metrics."""
RETRY_AFTER_SECONDS = 1
_KEY = re.compile(r"[A-Za-z0-9._-]{1,100}")
_OPEN = ("/", "/docs", "/openapi.json", "/healthz")
"""What needs no token: it tells nothing of any stream."""


class Backend(Protocol):
    """Where streams run. Its methods raise `Refused`."""

    async def predict(self, name: str, key: str, images: Images) -> dict[str, Any]:
        """Adapt a stream to images and predict them."""

    async def describe(self, name: str) -> dict[str, Any]:
        """The health of a stream."""

    async def reset(self, name: str, key: str) -> dict[str, Any]:
        """Let a stream begin again."""

    async def overview(self, shown: int, *, course: bool) -> list[dict[str, Any] | None]:
        """What each replica tells of its streams; None where one does not answer."""


class Endpoints:
    """What is done for each call of the service."""

    def __init__(self, backend: Backend, reader: ImageReader) -> None:
        self.backend, self.reader = backend, reader
        self.statuses: Counter[int] = Counter()

    async def predict(self, name: str, request: Request) -> dict[str, Any]:
        """Adapt a stream to images and predict them. A name that is new begins a new stream."""
        name, key = _checked_name(name), _key_of(request)
        _require_plain(request)
        body = await _bounded_body(request, self.reader.limits)
        kind = request.headers.get("content-type", "")
        images = await asyncio.to_thread(self.reader.read, kind, body)
        return await self.backend.predict(name, key, images)

    async def describe(self, name: str) -> dict[str, Any]:
        """The verdict on a stream, its counters, and their course over its batches."""
        return await self.backend.describe(_checked_name(name))

    async def reset(self, name: str, request: Request) -> dict[str, Any]:
        """Let a stream begin again from the source model; its counters go on."""
        return await self.backend.reset(_checked_name(name), _key_of(request))

    async def overview(self, limit: int = 50) -> dict[str, Any]:
        """The streams that were used last, with their course."""
        shown = max(1, min(limit, MOST_SHOWN))
        replicas = await self.backend.overview(shown, course=True)
        rows = [row for replica in replicas if replica for row in replica["streams"]]
        rows.sort(key=lambda row: -row["time"])
        known = sum(replica["known"] for replica in replicas if replica)
        up = [replica is not None for replica in replicas]
        return {"streams": rows[:shown], "known": known, "replicas": up}

    async def metrics(self) -> Response:
        """All counters, as Prometheus reads them."""
        replicas = await self.backend.overview(MOST_COUNTED, course=False)
        text = metrics.prometheus_text(replicas, self.statuses)
        return Response(text, media_type=metrics.CONTENT_TYPE)

    async def alive(self) -> dict[str, str]:
        """Whether the service answers at all."""
        return {"status": "ok"}


def make_app(
    backend: Backend, reader: ImageReader, *, token: str | None = None, only_here: bool = False
) -> FastAPI:
    """The application. With a `token`, all that tells of streams needs `Authorization: Bearer <token>`.

    Without one, `only_here` serves those alone who ask for this machine by `localhost` or by an address: the
    page of a stranger, whose name may be made to lead here, asks for it by that name.
    """
    app = FastAPI(
        title="fenchel serve",
        version=__version__,
        description="Streams of images on one network, each adapted by itself.",
        docs_url=None,  # FastAPI's own page loads its scripts from elsewhere
        redoc_url=None,
    )
    does = Endpoints(backend, reader)
    for method, path, endpoint, about in (
        ("POST", "/v1/streams/{name}/predict", does.predict, openapi.PREDICT),
        ("GET", "/v1/streams/{name}", does.describe, openapi.DESCRIBE),
        ("POST", "/v1/streams/{name}/reset", does.reset, openapi.RESET),
        ("GET", "/v1/streams", does.overview, openapi.OVERVIEW),
        ("GET", "/metrics", does.metrics, {**openapi.METRICS, "response_class": PlainTextResponse}),
        ("GET", "/healthz", does.alive, openapi.ALIVE),
    ):
        app.add_api_route(path, endpoint, methods=[method], **about)

    async def streams() -> str:
        return streams_page()

    async def docs() -> str:
        return api_page(app.openapi())

    for path, page in (("/", streams), ("/docs", docs)):
        app.add_api_route(path, page, response_class=HTMLResponse, include_in_schema=False)
    for kind, refuse in _REFUSALS.items():
        app.add_exception_handler(kind, refuse)

    async def guarded(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        try:
            _check_origin(request)
            if only_here and token is None:
                _check_host(request)
            if request.url.path not in _OPEN:
                _check_token(request, token)
            response = await call_next(request)
        except Refused as refused:
            response = _refusal(refused)
        except ClientDisconnect:
            response = _refusal(Refused(400, "the client went away before its request was whole."))
        does.statuses[response.status_code] += 1
        return response

    app.middleware("http")(guarded)
    return app


async def _refuse(request: Request, refused: Any) -> Response:
    return _refusal(refused)


async def _refuse_plainly(request: Request, error: Any) -> Response:
    return _refusal(Refused(error.status_code, str(error.detail)))


async def _refuse_arguments(request: Request, error: Any) -> Response:
    told = "; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in error.errors()[:3])
    return _refusal(Refused(422, f"{told}."))


_REFUSALS: dict[type[Exception], Callable[[Request, Any], Awaitable[Response]]] = {
    Refused: _refuse,
    HTTPException: _refuse_plainly,
    RequestValidationError: _refuse_arguments,
}


def _refusal(refused: Refused) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {}
    if refused.status == 503:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return JSONResponse({"error": refused.message}, refused.status, headers)


def _check_origin(request: Request) -> None:
    """Refuse pages of other places, which a browser on this machine may have open."""
    origin = request.headers.get("origin")
    if origin is None:
        return
    try:
        place = urlsplit(origin).netloc
    except ValueError:
        place = ""
    if place != request.headers.get("host"):
        raise Refused(403, "requests of pages from elsewhere are not served.")


def _check_host(request: Request) -> None:
    """Refuse other names than this machine's own: a browser may take any name for it (DNS rebinding)."""
    asked = request.headers.get("host", "")
    try:
        name = urlsplit(f"//{asked}").hostname or ""
    except ValueError:
        name = ""
    if name == "localhost" or name.endswith(".localhost"):
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise Refused(
            403,
            "without a token this service answers to localhost and to addresses alone; got Host "
            f"{asked[:100]!r}. Ask for it by one of them, or start it with --token-file.",
        ) from None


def _check_token(request: Request, token: str | None) -> None:
    if token is None:
        return
    scheme, _, sent = request.headers.get("authorization", "").partition(" ")
    # In constant time, so that how long it takes says nothing about the token.
    same = hmac.compare_digest(sent.strip().encode("utf-8", "replace"), token.encode())
    if scheme.lower() != "bearer" or not same:
        raise Refused(401, "this service needs its token: 'Authorization: Bearer <token>'.")


def _checked_name(name: str) -> str:
    try:
        return check_name(name)
    except ValueError as error:
        raise Refused(422, str(error)) from None


def _require_plain(request: Request) -> None:
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise Refused(415, f"bodies come as they are; got Content-Encoding {coding[:100]!r}.")


def _key_of(request: Request) -> str:
    """What names the request, so that it can be sent again without being learnt twice."""
    key: str | None = request.headers.get("idempotency-key")
    if key is None:
        return uuid.uuid4().hex
    if _KEY.fullmatch(key) is None:
        raise Refused(
            400, "an Idempotency-Key has 1 to 100 letters, digits, dots, hyphens and underscores."
        )
    return key


async def _bounded_body(request: Request, limits: Limits) -> bytes:
    """The body, if it is small enough and comes soon enough."""
    most = limits.request_bytes
    told = request.headers.get("content-length", "0")
    too_large = Refused(413, f"a request has at most {most} bytes. Send fewer images.")
    if not (told.isascii() and told.isdigit()):
        raise Refused(400, "Content-Length is a number of bytes.")
    if int(told[:20]) > most:
        raise too_large

    async def read() -> bytes:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise too_large
        return bytes(body)

    try:
        return await asyncio.wait_for(read(), limits.seconds)
    except asyncio.TimeoutError:
        raise Refused(408, f"a request is sent within {limits.seconds:g} seconds.") from None
