"""Weights of TensorFlow.js: `model.json` lists tensors, which lie one after the other in shards.

Nothing of such a file is run. The sizes it states are compared with the files before they are read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fenchel.fetching.archive import checked_name
from fenchel.files import bad_file

DTYPES = {"float32": "<f4", "int32": "<i4"}


def read_tfjs(model: Path) -> dict[str, Tensor]:
    """The tensors that `model.json` lists, by name, with TensorFlow's layout of axes.

    Raises:
        ValueError: the file is damaged, its shards are not whole, or hold another type of numbers.
    """
    try:
        groups = json.loads(model.read_text("utf-8"))["weightsManifest"]
        return {name: tensor for group in groups for name, tensor in _group(model, group).items()}
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        found = f"{type(error).__name__}: {error}"
        raise bad_file(model, "must be a model.json with a weightsManifest", found) from error


def _group(model: Path, group: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of one group, which lie in its shards one after the other."""
    entries = [_Entry.of(model, facts) for facts in group["weights"]]
    shards = [model.parent / _checked(model, path) for path in group["paths"]]
    stated, there = sum(entry.size for entry in entries), sum(s.stat().st_size for s in shards)
    if stated != there:
        raise bad_file(
            model, f"lists tensors of {stated} bytes", f"shards of {there} bytes", "Fetch it again."
        )
    content = b"".join(shard.read_bytes() for shard in shards)
    tensors, place = {}, 0
    for entry in entries:
        tensors[entry.name] = entry.tensor(content, place)
        place += entry.size
    return tensors


def _checked(model: Path, path: str) -> str:
    try:
        return checked_name(path).as_posix()
    except ValueError as error:
        raise bad_file(model, "must name shards beside it", str(error)) from None


@dataclass(frozen=True)
class _Entry:
    """A tensor as the manifest describes it."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @staticmethod
    def of(model: Path, facts: Mapping[str, Any]) -> _Entry:
        """What the manifest says, if it is of a kind that is read here."""
        name, kind = str(facts["name"]), facts["dtype"]
        shape = tuple(int(length) for length in facts["shape"])
        if kind not in DTYPES or "quantization" in facts or min(shape, default=0) < 0:
            quantized = ", quantized" if "quantization" in facts else ""
            rule = f"must hold tensors of {' or '.join(DTYPES)}"
            raise bad_file(model, rule, f"{name} of {kind}{quantized}", "Use another copy.")
        return _Entry(name, shape, np.dtype(DTYPES[kind]))

    @property
    def size(self) -> int:
        """In bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def tensor(self, content: bytes, place: int) -> Tensor:
        values = np.frombuffer(content, self.dtype, math.prod(self.shape), place)
        return torch.from_numpy(values.reshape(self.shape).copy())
