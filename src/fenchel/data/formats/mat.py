"""Numeric arrays of MATLAB level-5 files, as SVHN ships them.

Only what numeric arrays need is read (no cells, structs, objects or function handles), so that a
hostile file has nothing to reach. Layout: a 128-byte header, then elements (type, size, data),
each a matrix or a zlib stream that holds one. A matrix is flags, dimensions, name and values.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fenchel.data.formats.compressed import GIBIBYTE
from fenchel.files import bad_file

HEADER = 128
MATRIX, COMPRESSED = 14, 15
INT32, UINT32, INT8 = 5, 6, 1
STORAGE = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
NUMERIC_CLASSES = range(6, 16)  # double .. uint64
COMPLEX_FLAG = 0x0800
LIMIT = 2 * GIBIBYTE


def read_mat(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The numeric arrays of a level-5 `.mat` file by name, in MATLAB's (Fortran) order."""
    content = path.read_bytes()
    if content[126:128] not in (b"IM", b"MI"):
        raise bad_file(path, "must be a MATLAB level-5 file", f"{content[:20]!r}")
    order = "<" if content[126:128] == b"IM" else ">"
    try:
        return dict(_arrays(_Elements(memoryview(content)[HEADER:], order), order))
    except (ValueError, struct.error, zlib.error, UnicodeDecodeError, OverflowError) as error:
        raise bad_file(path, "must hold whole numeric arrays", str(error)) from error


def _arrays(elements: _Elements, order: str) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    for kind, body in elements:
        if kind == COMPRESSED:
            yield from _arrays(_Elements(_inflate(body), order, nested=True), order)
        elif kind == MATRIX:
            named = _matrix(_Elements(body, order), order)
            if named is not None:
                yield named


def _inflate(body: memoryview) -> bytes:
    decompressor = zlib.decompressobj()
    content = decompressor.decompress(body, LIMIT)
    if decompressor.unconsumed_tail:
        raise ValueError(f"an element that inflates to more than {LIMIT} bytes")
    if not decompressor.eof:
        raise ValueError("a compressed element that ends early")
    return content


def _matrix(parts: _Elements, order: str) -> tuple[str, npt.NDArray[Any]] | None:
    flags = np.frombuffer(parts.take(UINT32), order + "u4")
    if (
        flags.size < 1
        or int(flags[0]) & 0xFF not in NUMERIC_CLASSES
        or int(flags[0]) & COMPLEX_FLAG
    ):
        return None
    shape = tuple(int(n) for n in np.frombuffer(parts.take(INT32), order + "i4"))
    name = bytes(parts.take(INT8)).decode("ascii")
    kind, body = next(parts, (0, memoryview(b"")))
    if kind not in STORAGE:
        raise ValueError(f"array {name!r} with values of unknown type {kind}")
    values = np.frombuffer(body, order + STORAGE[kind])
    if len(shape) < 2 or min(shape) < 0 or math.prod(shape) != values.size:
        raise ValueError(f"array {name!r} of shape {shape} with {values.size} values")
    return name, values.reshape(shape, order="F")


@dataclass
class _Elements:
    """Iterates over (type, data) of a buffer; small elements carry their data in the tag."""

    content: bytes | memoryview
    order: str
    nested: bool = False  # a compressed element holds a matrix, never another compressed one
    position: int = 0

    def __iter__(self) -> Iterator[tuple[int, memoryview]]:
        return self

    def __next__(self) -> tuple[int, memoryview]:
        view = memoryview(self.content)
        if self.position >= len(view):
            raise StopIteration
        (word,) = struct.unpack_from(self.order + "I", view, self.position)
        if word >> 16:
            kind, size, begin = word & 0xFFFF, word >> 16, self.position + 4
            following = self.position + 8
        else:
            kind, size = struct.unpack_from(self.order + "II", view, self.position)
            begin = self.position + 8
            # Every element is padded to 8 bytes but the compressed ones.
            following = begin + (size if kind == COMPRESSED else -(-size // 8) * 8)
        if begin + size > len(view) or (self.nested and kind == COMPRESSED):
            raise ValueError(f"an element of type {kind} and {size} bytes at {self.position}")
        self.position = following
        return kind, view[begin : begin + size]

    def take(self, expected: int) -> memoryview:
        kind, body = next(self, (0, memoryview(b"")))
        if kind != expected:
            raise ValueError(f"an element of type {kind} where type {expected} belongs")
        return body
