"""The idx format of MNIST: a big-endian header, then unsigned bytes in C order."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np

from fenchel.data.base import Images
from fenchel.data.formats.compressed import GIBIBYTE, read_bytes
from fenchel.files import bad_file

UNSIGNED_BYTE = 0x08


def read_idx(path: Path, *, dimensions: int) -> Images:
    """The array of an idx file, gzipped or not: two zero bytes, dtype, rank, sizes, data."""
    content = read_bytes(path, limit=GIBIBYTE)
    expected = bytes((0, 0, UNSIGNED_BYTE, dimensions))
    if content[:4] != expected:
        rule = f"must start with {expected.hex()} (unsigned bytes, {dimensions} dimensions)"
        raise bad_file(path, rule, content[:4].hex() or "an empty file")
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise bad_file(path, f"must have a header of {header} bytes", f"{len(content)} bytes")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    if math.prod(shape) != len(content) - header:
        rule = f"shape {shape} needs {math.prod(shape)} bytes of data"
        raise bad_file(path, rule, f"{len(content) - header}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def write_idx(path: Path, array: Images) -> None:
    """Write an array of unsigned bytes as an idx file."""
    header = bytes((0, 0, UNSIGNED_BYTE, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(header + np.ascontiguousarray(array, np.uint8).tobytes())
