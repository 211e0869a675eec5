"""The state of a run under way: one file that is whole at every moment, and no pickle in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from fenchel.files import part_of, safetensors_bytes, write_atomically

FILE_NAME = "state.safetensors"
PART_NAME = part_of(Path(FILE_NAME)).name


@dataclass
class Progress:
    """How far a run is: the next step to take, and what was measured so far.

    Attributes:
        epoch, step: the step that comes next (`step` counts within the epoch).
        history: one row of metrics for every finished epoch.
        totals: (3,) sums over this epoch's steps: loss, hits, samples.
        best: weights of the best epoch so far, when the best is kept.
        best_epoch: the number of that epoch, from 1.
        extra: whatever else the next step depends on.
    """

    totals: Tensor
    epoch: int = 0
    step: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    best_epoch: int | None = None
    extra: dict[str, Tensor] = field(default_factory=dict)


def save(
    folder: Path,
    identity: Mapping[str, Any],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
) -> None:
    """Write everything that the remaining steps depend on."""
    moments = {
        f"optimizer.{index}.{name}": value
        for index, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
        if isinstance(value, Tensor)
    }
    tensors = {
        **{f"model.{name}": tensor for name, tensor in model.state_dict().items()},
        **{f"best.{name}": tensor for name, tensor in progress.best.items()},
        **{f"extra.{name}": tensor for name, tensor in progress.extra.items()},
        **moments,
        "totals": progress.totals,
    }
    position = {
        "epoch": progress.epoch,
        "step": progress.step,
        "history": progress.history,
        "best_epoch": progress.best_epoch,
    }
    metadata = {"identity": json.dumps(identity), "position": json.dumps(position)}
    write_atomically(folder / FILE_NAME, safetensors_bytes(tensors, metadata))


def read_identity(folder: Path) -> dict[str, Any] | None:
    """What the run in `folder` was started with, or None if none is under way."""
    file = folder / FILE_NAME
    return json.loads(_read(file)[0]["identity"]) if file.is_file() else None


def restore(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Put the saved state into `model` and `optimizer` and return the position."""
    metadata, tensors = _read(folder / FILE_NAME)
    groups: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "extra": {}, "optimizer": {}}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition(".")
        if kind in groups:
            groups[kind][rest] = tensor
    model.load_state_dict(groups["model"])
    _restore_moments(optimizer, groups["optimizer"])
    position = json.loads(metadata["position"])
    device = next(model.parameters()).device
    return Progress(
        totals=tensors["totals"].to(device),
        best=groups["best"],
        extra=groups["extra"],
        **position,
    )


def remove(folder: Path) -> None:
    """Remove the state, and what a killed process left of one, once the run is finished."""
    for name in (FILE_NAME, PART_NAME):
        (folder / name).unlink(missing_ok=True)


def _restore_moments(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    values: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, _, key = name.partition(".")
        like = parameters[int(index)]
        if tensor.shape == like.shape:
            # In the parameter's own memory format: kernels may round differently in another.
            tensor = torch.empty_like(like, dtype=tensor.dtype).copy_(tensor)
        values.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": values})


def _read(file: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    try:
        with safe_open(file, framework="pt") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            return opened.metadata(), tensors
    except SafetensorError as error:
        raise ValueError(
            f"the state of a run must be a whole safetensors file; {str(file)!r} is damaged "
            f"({error}). Delete it to start the run again."
        ) from error


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Only one process may train in a folder; the lock ends with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(
                f"one process trains in a folder at a time; another one is at work in "
                f"{str(folder)!r}. Wait for it, or choose another folder."
            ) from error
        yield
