"""The states of streams on the disk: one safetensors file per stream, whole or absent, in one folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fenchel.files import (
    digest_of,
    locked,
    part_of,
    read_described,
    safetensors_bytes,
    write_atomically,
)

FORMAT = "fenchel-stream-1"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_BEGINNING = re.compile(
    rb'.{8}\{"__metadata__":\{"fenchel":"\{\\"format\\": \\"%b\\", \\"name\\": \\"([A-Za-z0-9._-]{1,100})\\"'
    % FORMAT.encode(),
    re.DOTALL,
)
"""Of a file as `to_bytes` makes it: the length of the header, and the first of what describes the stream."""
_LONGEST_BEGINNING = 300


def check_name(name: object) -> str:
    """The name of a stream, if it may be one.

    >>> check_name("camera-7.north")
    'camera-7.north'
    """
    if not isinstance(name, str):
        raise TypeError(f"a stream's name is a string; got {type(name).__name__}. Pass str(...).")
    if _NAME.fullmatch(name) is None:
        raise ValueError(
            "a stream's name has 1 to 100 letters (a to z), digits, dots, hyphens and underscores; got "
            f"{name[:100]!r}. Choose another name."
        )
    return name


@dataclass(frozen=True)
class StreamFile:
    """All that is kept of a stream.

    Attributes:
        network: names the network that the state belongs to.
        notes: whatever the owner of the stream keeps beside its state, as JSON has it.
        tensors: the state.
    """

    name: str
    network: str
    mode: str = "adapting"
    notes: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict, repr=False)

    def to_bytes(self) -> bytes:
        """The content of the file."""
        # The format sorts tensors and stores rows. Methods draw numbers entry by entry, and kernels choose by
        # how memory lies, so both come back as they were.
        strides = {
            name: list(tensor.stride())
            for name, tensor in self.tensors.items()
            if not tensor.is_contiguous()
        }
        described = {
            "format": FORMAT,
            "name": self.name,
            "network": self.network,
            "mode": self.mode,
            "notes": self.notes,
            "order": list(self.tensors),
            "strides": strides,
        }
        return safetensors_bytes(self.tensors, {"fenchel": json.dumps(described)})

    @staticmethod
    def read(path: Path) -> StreamFile:
        """The inverse of `to_bytes`."""
        described, tensors = read_described(
            path,
            what="the state of a stream",
            form=FORMAT,
            remedy="Forget the stream, or bring its file back.",
        )
        for name, strides in described["strides"].items():
            laid = torch.empty_strided(tensors[name].shape, strides, dtype=tensors[name].dtype)
            tensors[name] = laid.copy_(tensors[name])
        tensors = {name: tensors[name] for name in described["order"]}
        kept = {key: described[key] for key in ("name", "network", "mode", "notes")}
        return StreamFile(**kept, tensors=tensors)


def _written(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # it has just been forgotten
        return 0


def _described(path: Path) -> dict[str, Any]:
    """What a file says of its stream; the states after it are not read."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size:
            raise ValueError("the file is not whole")
        described = json.loads(json.loads(file.read(length))["__metadata__"]["fenchel"])
    if not isinstance(described, dict):
        raise TypeError("the file is not ours")
    return described


class StreamStore:
    """A folder of streams. Files are named by a digest, so a name never becomes a path.

    Several processes may share a folder. Then each is an `owner` by another name, and `owns` tells which
    streams are its own. Two processes are never one owner at a time, on systems that lock files: the
    second one waits for `seconds`, and is refused.
    """

    def __init__(
        self,
        folder: Path,
        *,
        owner: str = "streams",
        owns: Callable[[str], bool] = lambda name: True,
        seconds: float = 0.0,
    ) -> None:
        self.folder, self.owns = folder, owns
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock = locked(folder / f"{owner}.lock", seconds=seconds)
        except BlockingIOError as error:
            raise ValueError(
                f"a folder of streams belongs to one process at a time; another one has {folder}. End it, or "
                "use another folder."
            ) from error

    def file(self, name: str) -> Path:
        """Where the stream of that name is kept."""
        return self.folder / f"{digest_of(name)}.safetensors"

    def write(self, stream: StreamFile) -> None:
        """Keep a stream, in the place of what was there."""
        write_atomically(self.file(stream.name), stream.to_bytes())

    def read(self, name: str) -> StreamFile | None:
        """The stream of that name, if there is one."""
        if not self.owns(name):
            raise ValueError(f"stream {name!r} belongs to another process. Ask that one.")
        path = self.file(name)
        if not path.is_file():
            return None
        found = StreamFile.read(path)
        if found.name != name:
            raise ValueError(
                f"the file of stream {name!r} must be about it; {path} is about {found.name!r}. Forget the "
                "stream, or bring its file back."
            )
        return found

    def remove(self, name: str) -> None:
        """Forget the stream of that name."""
        file = self.file(name)
        for path in (file, part_of(file)):  # a process may have died while it wrote
            path.unlink(missing_ok=True)

    def names(self) -> Iterator[str]:
        """The names of all streams of ours. Of each file only the beginning is read: there may be many."""
        for path in self.folder.glob("*.safetensors"):
            if (name := self._own_name_in(path)) is not None:
                yield name

    def notes(self, most: int | None = None) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The name and the notes of streams of ours whose file can be read; states are not loaded.

        Those that were written last come first, and no more than `most` files are read.
        """
        found = sorted(self.folder.glob("*.safetensors"), key=_written, reverse=True)
        named = ((path, self._own_name_in(path)) for path in found)
        ours = ((path, name) for path, name in named if name is not None)
        for path, name in islice(ours, most):
            try:
                yield name, _described(path)["notes"]
            except (OSError, ValueError, KeyError, TypeError):
                continue  # told when that stream is wanted

    def _own_name_in(self, path: Path) -> str | None:
        try:
            with path.open("rb") as file:
                beginning = _BEGINNING.match(file.read(_LONGEST_BEGINNING))
        except OSError:
            return None
        name = None if beginning is None else beginning[1].decode()
        return name if name and path == self.file(name) and self.owns(name) else None

    def close(self) -> None:
        """Let others have the folder."""
        self._lock.close()
