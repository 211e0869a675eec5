"""Unpack archives that are not trusted.

Only plain files and folders are unpacked, inside the target, within limits on bytes and number. A
link, device, absolute path, `..` or duplicate refuses the whole archive and leaves nothing behind.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from fenchel.files import bad_file

MOST_BYTES = 64 << 30
MOST_FILES = 4_000_000
BLOCK = 1 << 20
# Errors that are not the archive's fault; a malformed one can cause any other.
DISK_TROUBLES = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EROFS)


@dataclass
class _Limited:
    """A stream that refuses to give more than `left` bytes: a bomb in the headers counts too."""

    stream: IO[bytes]
    left: int

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes (all, when negative)."""
        content = self.stream.read(min(size, self.left + 1) if size >= 0 else self.left + 1)
        self.left -= len(content)
        if self.left < 0:
            raise ValueError("more bytes than the limit allows (a decompression bomb?)")
        return content


def extract(
    archive: Path, into: Path, *, most_bytes: int = MOST_BYTES, most_files: int = MOST_FILES
) -> None:
    """Unpack a tar (plain, gz, bz2, xz) or zip `archive` to the new folder `into`, or raise."""
    if into.exists() and any(into.iterdir()):
        raise ValueError(f"archives are unpacked to an empty folder; {into} has content.")
    into.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{into.name}-", dir=into.parent))
    try:
        with _blamed_on(archive):
            written = 0
            for name, stream in _members(archive, most_bytes, most_files):
                written += _write(staging, name, stream, most_bytes - written)
        os.replace(staging, into)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def check_archive(archive: Path) -> int:
    """Walk through an archive without unpacking it; the number of members, or an error."""
    with _blamed_on(archive):
        count = 0
        for name, stream in _members(archive, MOST_BYTES, MOST_FILES):
            checked_name(name)
            while stream is not None and stream.read(BLOCK):
                pass
            count += 1
    return count


@contextmanager
def _blamed_on(archive: Path) -> Iterator[None]:
    """Turn whatever a malformed archive causes into an error that names it."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, NotImplementedError) as error:
        raise bad_file(archive, "must be a whole tar or zip archive", str(error)) from error
    except (ValueError, EOFError, OSError, RuntimeError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno in DISK_TROUBLES:
            raise
        raise bad_file(archive, "must be an archive of plain files", str(error)) from error


def _members(
    archive: Path, most_bytes: int, most_files: int
) -> Iterator[tuple[str, IO[bytes] | None]]:
    """(name, content) of each member, content None for folders, refusing all that is neither."""
    with archive.open("rb") as stream:
        is_zip = stream.read(2) == b"PK"
    members = _zip_members(archive) if is_zip else _tar_members(archive, most_bytes)
    for count, member in enumerate(members):
        if count >= most_files:
            raise ValueError(f"more than {most_files} members")
        yield member


def _tar_members(archive: Path, most_bytes: int) -> Iterator[tuple[str, IO[bytes] | None]]:
    with archive.open("rb") as stream:
        magic = stream.read(6)
    with _decompressed(archive, magic) as raw:
        # Twice the limit plus a little covers the headers and padding of many small files.
        limited = cast(IO[bytes], _Limited(raw, 2 * most_bytes + (1 << 20)))
        with tarfile.open(fileobj=limited, mode="r|") as tar:
            for member in tar:
                if not (member.isreg() or member.isdir()):
                    raise ValueError(f"{member.name!r}, a link or device")
                if member.size > most_bytes:
                    raise ValueError(f"{member.name!r} of {member.size} bytes")
                yield member.name, tar.extractfile(member) if member.isreg() else None


def _decompressed(archive: Path, magic: bytes) -> IO[bytes]:
    openers: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
    for prefix, opener in openers.items():
        if magic.startswith(prefix):
            return cast(IO[bytes], opener(archive, "rb"))
    return archive.open("rb")


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    with zipfile.ZipFile(archive) as content:
        for member in content.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise ValueError(f"{member.filename!r}, a link or device")
            if member.is_dir():
                yield member.filename, None
            else:
                with content.open(member) as stream:
                    yield member.filename, stream


def _write(folder: Path, name: str, stream: IO[bytes] | None, budget: int) -> int:
    """Write one member below `folder`; the number of bytes written."""
    target = folder / checked_name(name)
    written = 0
    try:
        (target if stream is None else target.parent).mkdir(parents=True, exist_ok=True)
        if stream is not None:
            with target.open("xb") as sink:
                while block := stream.read(BLOCK):
                    written += len(block)
                    if written > budget:
                        raise ValueError("more bytes than the limit allows (a bomb?)")
                    sink.write(block)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise ValueError(f"{name!r} twice") from None
    return written


def checked_name(name: str) -> PurePosixPath:
    """A relative path that stays where it is put, or a ValueError.

    >>> checked_name("CIFAR-10-C/fog.npy").as_posix()
    'CIFAR-10-C/fog.npy'
    """
    path = PurePosixPath(name)
    strange = not name or "\\" in name or "\0" in name or ":" in name
    if strange or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name!r}, a path that leads outside")
    return path
