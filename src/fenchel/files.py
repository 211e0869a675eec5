"""Files that are whole or absent, the same bytes for the same content, and digests that name content."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor


def bad_file(path: Path | str, rule: str, found: str, remedy: str = "") -> ValueError:
    """The error for a malformed file: its name, the rule, what it holds, and what to do."""
    remedy = remedy or "Fetch the file again, or point to another copy."
    if Path(path).is_file():
        with Path(path).open("rb") as stream:
            found = "an HTML page instead of data" if is_html(stream.read(512)) else found
    return ValueError(f"{path}: {rule}; found {found}. {remedy}")


def is_html(beginning: bytes) -> bool:
    """Whether a file begins like a web page: what a server sends in place of a missing file."""
    return beginning.lstrip().lower().startswith((b"<!doctype", b"<html", b"<head"))


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write `content` to `path` so that a crash at any moment leaves the old file or the new one.

    The bytes go to `<name>.part` beside it, reach the disk, and only then take the name. A part
    left behind by a killed process is overwritten by the next write.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = part_of(target)
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, target)
    _sync_folder(target.parent)


def part_of(path: Path) -> Path:
    """Where the bytes of `path` go before it takes its name."""
    return path.with_name(path.name + ".part")


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system lets a folder be opened (not Windows)."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def locked(path: Path, *, seconds: float = 0.0) -> IO[bytes]:
    """The file, open, and ours until it is closed or the process ends; on Windows it is only open.

    Raises:
        BlockingIOError: somebody else has it, and still had it after `seconds`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("ab")
    if os.name != "posix":
        return file
    import fcntl

    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                file.close()
                raise
            time.sleep(0.05)
        else:
            return file


def safetensors_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """`tensors` and `metadata` in the safetensors format, byte-identical for equal content.

    The safetensors library writes its metadata in a random order; here the header is sorted, so
    that two files can be compared, and hashed, as files.
    """
    import safetensors.torch

    contiguous = _apart({n: tensor.detach().cpu().contiguous() for n, tensor in tensors.items()})
    raw = safetensors.torch.save(contiguous, dict(metadata))
    length = int.from_bytes(raw[:8], "little")
    header = json.dumps(json.loads(raw[8 : 8 + length]), sort_keys=True, separators=(",", ":"))
    encoded = header.encode()
    encoded += b" " * (-len(encoded) % 8)  # the format aligns the tensors to eight bytes
    return len(encoded).to_bytes(8, "little") + encoded + raw[8 + length :]


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with memory of their own: the format knows no two names of one, as tied weights have."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    return apart


def read_described(
    path: str | Path, *, what: str, form: str, remedy: str
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description (metadata `fenchel`, a JSON object) and the tensors of a safetensors file.

    No code from the file runs. Errors call it `what`, and end with `remedy`; its format must be `form`.
    """
    from safetensors import SafetensorError, safe_open

    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(
            f"{what} is a .safetensors file; there is none at {str(file)!r}. {remedy}"
        )
    try:
        with safe_open(file, framework="pt") as opened:
            described = json.loads((opened.metadata() or {}).get("fenchel", "{}"))
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{what} is a safetensors file; {str(file)!r} is not whole ({error}). {remedy}"
        ) from error
    found = described.get("format") if isinstance(described, dict) else None
    if found != form:
        raise ValueError(f"{what} says format={form!r}; {str(file)!r} says {found!r}. {remedy}")
    return described, tensors


def digest_of(*parts: bytes | str | npt.NDArray[Any]) -> str:
    """A short stable hash of texts, bytes and arrays (their dtype and shape count too)."""
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            hasher.update(f"{part.dtype.str}{part.shape}".encode())
            for block in _blocks(part):
                hasher.update(np.ascontiguousarray(block).data)
        else:
            hasher.update(part.encode() if isinstance(part, str) else part)
        hasher.update(b"\0")
    return hasher.hexdigest()


def _blocks(array: npt.NDArray[Any], rows: int = 4096) -> Iterable[npt.NDArray[Any]]:
    """Slices of a (memory-mapped) array, so that hashing it never holds the whole of it."""
    if array.ndim == 0:
        yield array
        return
    for begin in range(0, len(array), rows):
        yield array[begin : begin + rows]


def md5_of(path: Path) -> str:
    """The md5 of a file, read a megabyte at a time (a checksum here, not a signature)."""
    hasher = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            hasher.update(block)
    return hasher.hexdigest()


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """A hash of the names and numbers of tensors, in whatever order they come."""
    parts: list[Any] = []
    for name, tensor in sorted(tensors.items()):
        parts += [name, tensor.detach().cpu().contiguous().numpy()]
    return digest_of(*parts)


def file_digest(path: str | Path) -> str:
    """A short stable hash of a file's content, read a megabyte at a time."""
    hasher = hashlib.blake2b(digest_size=16)
    with Path(path).open("rb") as stream:
        while block := stream.read(1 << 20):
            hasher.update(block)
    return hasher.hexdigest()
