"""A run on the disk: where it stands and what the adapter has learnt, so that it can go on from there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fenchel.files import safetensors_bytes, write_atomically

FORMAT = "fenchel-adapt-1"


@dataclass(frozen=True)
class Standing:
    """Where a run stands between two batches.

    Attributes:
        described: all that decides its predictions; a run is continued only under the same.
        images: how many are in the file, usable or not.
        sizes: the bytes that belong to each file so far.
        tally: as JSON has it.
        tensors: the state of the adapter.
    """

    described: Mapping[str, Any]
    images: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    tally: Mapping[str, Any] = field(default_factory=dict)
    finished: bool = False
    tensors: Mapping[str, Tensor] = field(default_factory=dict, repr=False)

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        entries = {
            "described": dict(self.described),
            "images": self.images,
            "sizes": dict(self.sizes),
            "tally": dict(self.tally),
            "finished": self.finished,
        }
        metadata = {"format": FORMAT, "standing": json.dumps(entries, sort_keys=True)}
        write_atomically(path, safetensors_bytes(self.tensors, metadata))

    @staticmethod
    def load(path: Path) -> Standing:
        """The inverse of `save`."""
        try:
            with safe_open(path, framework="pt") as opened:
                metadata = opened.metadata() or {}
            tensors = safetensors.torch.load_file(path)
            if metadata.get("format") != FORMAT:
                raise ValueError(f"its format is {metadata.get('format')!r}")
            return Standing(**json.loads(metadata["standing"]), tensors=tensors)
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}: must be the saved state of a run of `fenchel adapt`, and is not ({error}). Begin "
                "anew with force=True."
            ) from error

    def require_same(self, described: Mapping[str, Any]) -> None:
        """Refuse to go on under other settings than the run began with."""
        ours = json.loads(json.dumps(dict(described)))  # as the file has it: lists for tuples
        differ = [
            f"{name} is {ours.get(name)!r} and was {self.described.get(name)!r}"
            for name in {**self.described, **ours}
            if ours.get(name) != self.described.get(name)
        ]
        if differ:
            raise ValueError(
                f"a run is continued with the options that it began with; {'; '.join(differ)}. Use the same, "
                "or begin anew with force=True."
            )


def state_file(rows: Path) -> Path:
    """Where the state of the run that writes `rows` is kept."""
    return rows.with_name(rows.name + ".state.safetensors")
