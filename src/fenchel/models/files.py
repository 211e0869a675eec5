"""Files that are whole or absent, and the same bytes for the same content."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from torch import Tensor


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


def safetensors_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """`tensors` and `metadata` in the safetensors format, byte-identical for equal content.

    The safetensors library writes its metadata in a random order; here the header is sorted, so
    that two files can be compared, and hashed, as files.
    """
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    raw = safetensors.torch.save(contiguous, dict(metadata))
    length = int.from_bytes(raw[:8], "little")
    header = json.dumps(json.loads(raw[8 : 8 + length]), sort_keys=True, separators=(",", ":"))
    encoded = header.encode()
    encoded += b" " * (-len(encoded) % 8)  # the format aligns the tensors to eight bytes
    return len(encoded).to_bytes(8, "little") + encoded + raw[8 + length :]
