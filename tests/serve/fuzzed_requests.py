"""Requests that nobody should send: malformed images, sizes, names and headers, from a seed."""

from __future__ import annotations

import gzip
import io
import random
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import quote

import numpy as np
from PIL import Image

NAMES = (
    *(
        "a",
        "north",
        "..",
        ".",
        "...",
        "%2e%2e%2fetc%2fpasswd",
        "..%5c..%5cx",
        "a%00b",
        "%0a",
        "a b",
    ),
    *("x" * 100, "x" * 101, "x" * 3000, "ä", "日本", "a;b", "a'b\"", "<script>", "${x}", "CON"),
)
PATHS = (
    "/v1/streams/{}/predict",
    "/v1/streams/{}",
    "/v1/streams/{}/reset",
    "/v1/streams/{}/nothing",
)
METHODS = (*["POST"] * 40, "GET", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH")
TYPES = (
    *("application/x-npy", "application/octet-stream", "image/png", "image/jpeg", "image/tiff"),
    *("multipart/form-data; boundary=b", "multipart/form-data", "multipart/form-data; boundary="),
    *("application/json", "text/html", "", ";;;", "image/svg+xml", "application/x-python-pickle"),
    *("multipart/form-data; boundary*=utf-9''%zz", "image/png; charset=" + "x" * 500),
)
FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF", "PPM")


@dataclass(frozen=True)
class Fuzzed:
    """One request."""

    method: str
    target: str
    body: bytes = field(repr=False)
    headers: dict[str, str] = field(default_factory=dict)


def fuzzed(seed: int) -> Fuzzed:
    """The request of that number: most are broken in some way, a few are whole."""
    draw = random.Random(seed)
    name = draw.choice(NAMES) if draw.random() < 0.6 else "north"
    if "%" not in name:
        name = quote(name, safe="")
    target = draw.choice(PATHS[:1] * 6 + PATHS).format(name)
    if draw.random() < 0.05:
        target = draw.choice(
            ["/", "/docs", "/metrics", "/v1/streams?limit=x", "/v1/streams?limit=-5"]
        )
    kind = draw.choice(TYPES)
    body = _broken(_body(draw, kind), draw)
    headers = {"Content-Type": kind} if kind else {}
    if draw.random() < 0.2:
        headers["Idempotency-Key"] = draw.choice(["k", "", "a/b", "x" * 200, "../k", "7"])
    if draw.random() < 0.1:
        headers["Authorization"] = draw.choice(["Bearer", "Basic x", "Bearer \u00e4", "x" * 900])
    if draw.random() < 0.05:
        headers["Origin"] = draw.choice(["null", "http://elsewhere", "http://[", "::"])
    return Fuzzed(draw.choice(METHODS), target, body, headers)


def _body(draw: random.Random, kind: str) -> bytes:
    if "npy" in kind or "octet" in kind:
        return _array(draw)
    if kind.startswith("multipart"):
        count = draw.choice([0, 1, 1, 2, 5, 300])
        same = _picture(draw)
        other = _picture(draw) if draw.random() < 0.2 else same
        return _form([same, other][:count] + [same] * (count - 2), draw)
    return draw.choice([_picture(draw), _array(draw), b"", b"<svg/>", draw.randbytes(200)])


def _array(draw: random.Random) -> bytes:
    shape: Any = draw.choice(
        [(1, 8, 8, 3), (3, 8, 8, 3), (2, 3, 8, 8), (2, 8, 8), (0, 8, 8, 3), (), (4,), (1, 1, 1, 3),
         (2, 5, 8, 8), (300, 2, 2, 3), (2, 3, 1, 1), (1, 3, 64, 64), (2, 0, 8, 3)]
    )  # fmt: skip
    kind = draw.choice(["u1", "f4", "f8", "f2", ">f4", "i8", "c8", "?", "U2", "O", "M8[s]"])
    values: Any = np.zeros(shape, "u1")
    if kind != "O":
        values = (np.random.default_rng(draw.getrandbits(32)).random(shape) * 200).astype("f4")
        values = values.astype("i8").astype(kind) if kind[0] in "UM" else values.astype(kind)
    else:
        values = values.astype("O")
    if values.dtype.kind == "f" and values.size and draw.random() < 0.3:
        values.reshape(-1)[0] = draw.choice([np.nan, np.inf, -np.inf])
    file = io.BytesIO()
    np.save(file, values, allow_pickle=True)
    return file.getvalue()


def _picture(draw: random.Random) -> bytes:
    if draw.random() < 0.1:
        return _bomb()
    size = draw.choice([(8, 8), (8, 8), (8, 8), (1, 1), (9, 7), (64, 3)])
    mode = draw.choice(["RGB", "RGB", "L", "1"])
    file = io.BytesIO()
    form = draw.choice(FORMATS) if mode != "1" else "PNG"
    Image.new(mode, size, draw.choice([0, 1])).save(file, form)
    return file.getvalue()


@cache
def _bomb() -> bytes:
    """Few bytes that would become many pixels."""
    file = io.BytesIO()
    Image.new("1", (9000, 9000)).save(file, "PNG")
    return file.getvalue()


def _form(contents: list[bytes], draw: random.Random) -> bytes:
    head = b'Content-Disposition: form-data; name="images"; filename="%s"\r\n\r\n'
    names = [b"a.png", b"../../etc/passwd", b"\xff\xfe", b"x" * 999, b"\"; filename*=x'y'z\"", b""]
    parts = [b"--b\r\n" + head % draw.choice(names) + content + b"\r\n" for content in contents]
    return b"".join(parts) + draw.choice([b"--b--\r\n", b"--b--\r\n", b"--b--\r\n", b"--b", b""])


def _broken(body: bytes, draw: random.Random) -> bytes:
    way = draw.random()
    if way < 0.4 or not body:
        return body
    if way < 0.6:
        return body[: draw.randrange(len(body))]
    changed = bytearray(body)
    for _ in range(draw.choice([1, 3, 20])):
        changed[draw.randrange(min(len(changed), draw.choice([16, 128, 10**9])))] = draw.randrange(
            256
        )
    return bytes(changed)


def malformed(seed: int) -> bytes:
    """What no client of HTTP would send: bytes for a socket."""
    draw = random.Random(seed)
    body = _array(draw) if draw.random() < 0.7 else draw.randbytes(300)
    length, few = b"Content-Length: %d" % len(body), b"%x\r\n" % len(body)
    head = [b"Host: 127.0.0.1", b"Content-Type: application/x-npy", b"Connection: close"]
    line = b"POST /v1/streams/north/predict HTTP/1.1"
    shapes = [
        (line, [*head, b"Content-Length: -1"], body),
        (line, [*head, b"Content-Length: 1e3"], body),
        (line, [*head, b"Content-Length: " + b"9" * 30], body),
        (line, [*head, b"Content-Length: 99999"], body),  # less comes than is told
        (line, [*head, b"Content-Length: 3"], body),
        (line, [*head, length, b"Content-Length: 7"], body),
        (line, [*head, length, b"Transfer-Encoding: chunked"], body),
        (line, [*head, b"Transfer-Encoding: chunked"], few + body + b"\r\n0\r\n\r\n"),
        (line, [*head, b"Transfer-Encoding: chunked"], b"-5\r\n" + body),
        (line, [*head, b"Transfer-Encoding: chunked"], b"ffffffffffffffffff\r\n" + body),
        (line, [*head, b"Transfer-Encoding: chunked"], few + body[: len(body) // 2]),
        (line, [*head, b"Transfer-Encoding: gzip, x"], body),
        (line, [*head, length, b"Content-Encoding: gzip"], _gzip_bomb()),
        (line, [*head, length, b"Expect: 100-continue"], body),
        (line, [*head, length, b"X: " + b"y" * draw.choice([10, 70_000])], body),
        (line, [*head, length, *[b"X-%d: y" % number for number in range(2000)]], body),
        (line, [*head, length, b"Authorization: Bearer \xff\xfe"], body),
        (line, [*head, length, b"Idempotency-Key: \xe4\x00"], body),
        (line, [*head, length, b": no name", b"no colon", b" folded"], body),
        (line, [b"Host: [::1", *head[1:], length], body),
        (line, [b"Host: a", b"Host: b", *head[1:], length], body),
        (line, [*head[1:], length], body),
        (line.replace(b"north", b"no\x00rth"), [*head, length], body),
        (line.replace(b"north", b"\xff\xfe"), [*head, length], body),
        (line.replace(b"north", b"n" * 70_000), [*head, length], body),
        (line.replace(b"1.1", b"9.9"), [*head, length], body),
        (line.replace(b"/v1", b"http://elsewhere/v1"), [*head, length], body),
        (line.replace(b"/v1", b"/../../v1"), [*head, length], body),
        (b"GET /", head, b""),
        (b"PRI * HTTP/2.0", [], b"SM\r\n\r\n"),
        (b"OPTIONS * HTTP/1.1", head, b""),
        (draw.randbytes(40), [draw.randbytes(40)], body),
    ]
    first, headers, content = draw.choice(shapes)
    return b"\r\n".join([first, *headers, b"", content])


@cache
def _gzip_bomb() -> bytes:
    return gzip.compress(bytes(50_000_000))
