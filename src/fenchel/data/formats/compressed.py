"""Whole files in memory, decompressed if need be, with a limit on what they may grow to."""

from __future__ import annotations

import bz2
import gzip
import zlib
from pathlib import Path
from typing import IO, cast

from fenchel.files import bad_file

GIBIBYTE = 1 << 30


def read_bytes(path: Path, *, limit: int) -> bytes:
    """The bytes of a plain, `.gz` or `.bz2` file (recognised by its content), at most `limit` of them."""
    with path.open("rb") as stream:
        magic = stream.read(3)
    try:
        with _opener(path, magic) as stream:
            content = stream.read(limit + 1)
    except (EOFError, OSError, zlib.error) as error:
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            raise
        raise bad_file(path, "must decompress without errors", str(error)) from error
    if len(content) > limit:
        raise bad_file(path, f"may hold at most {limit} bytes", "more (a decompression bomb?)")
    return content


def _opener(path: Path, magic: bytes) -> IO[bytes]:
    if magic.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.open(path, "rb"))
    if magic == b"BZh":
        return cast(IO[bytes], bz2.open(path, "rb"))
    return path.open("rb")
