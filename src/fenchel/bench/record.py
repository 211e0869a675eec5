"""The two records that planning, running, storing and reporting share: a cell, and its outcome.

A `Cell` holds everything that decides a result and nothing else but a few labels for people; its
`key` names the result. A `Record` is a cell with its outcome. Both are frozen and plain, so that
they travel between processes and to JSON and back without loss.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

SCHEMA_VERSION = 1
"""Part of every key: raise it when the meaning of a cell changes, so that old results do not pass."""

Plain = None | bool | int | float | str | Sequence["Plain"]
Status = Literal["done", "failed"]

_IF_ANY = {"if_any": True}  # a field that is part of the key only where it is not empty
_IF_SET = {"if_set": True}  # a field that is part of the key only where it is not None
_LABEL = {"label": True}  # a field for people, which decides nothing and is no part of the key


@dataclass(frozen=True, kw_only=True)
class CellShift:
    """One shift of a stream; `severity` is None for a shift that is a data set of its own."""

    name: str
    severity: int | None
    dataset: str
    split: str
    digest: str
    origin: str = field(default="", metadata=_LABEL)

    @property
    def title(self) -> str:
        """`fog 5`, or the bare name where there is no severity."""
        return self.name if self.severity is None else f"{self.name} {self.severity}"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run: a model, adapted under one configuration, over one stream.

    In the setting `reset` a stream is a single shift; in the others it is all of them, in order.
    Values are canonical, so that equal runs have equal keys: what a method does not use is None,
    defaults are written out, and objectives that are the same function carry one name
    (see `fenchel.bench.canonical`).

    Attributes:
        data: the data set or its spec, as the sweep names it.
        shifts: what is streamed, with digests of the content.
        metric: `accuracy` or `mean-class-accuracy`.
        setting, rounds, bursts, order, concentration, batch_size, limit, seed: describe the stream; see
            `Stream`.
        architecture, loss, model_digest: the source model and the loss it was trained with.
        method: the canonical name; a sweep may use other names for it (`Store.requests`).
        options: those of the method's objective, such as `threshold` or `q`, defaults included.
        temperature, optimizer, learning_rate: None where no parameter moves.
        protect: what keeps the adaptation from doing harm, as `fenchel.adapt` takes it; None for the bare
            step. A protected run leaves what is None besides to `fenchel.adapt`, and its method if that is
            `conjugate`.
        plugins: the files that brought the method, loss or data set, with digests of their content.
        model_files: the files of a network that is no checkpoint (code, weights, loss), with digests.
        logits, dim: where the logits are in what the network returns, and the axis of their classes.
        checkpoint: label: the name of the checkpoint.
    """

    data: str
    shifts: tuple[CellShift, ...]
    metric: str = "accuracy"
    setting: str = "reset"
    rounds: int | None = field(default=None, metadata=_IF_ANY)
    bursts: str | None = field(default=None, metadata=_IF_ANY)
    order: str = "shuffled"
    concentration: float | None = None
    batch_size: int = 200
    limit: int | None = None
    seed: int = 0
    architecture: str
    loss: str
    model_digest: str
    method: str
    options: Mapping[str, Plain] = field(default_factory=dict)
    temperature: float | None = None
    optimizer: str | None = None
    learning_rate: float | None = None
    steps: int = 1
    predict: str | None = "after"
    statistics: str | float | None = "batch"
    parameters: str | tuple[str, ...] | None = "normalization"
    episodic: bool = False
    protect: str | None = field(default=None, metadata=_IF_ANY)
    plugins: Mapping[str, str] = field(default_factory=dict, metadata=_IF_ANY)
    model_files: Mapping[str, str] = field(default_factory=dict, metadata=_IF_ANY)
    logits: str | int | None = field(default=None, metadata=_IF_SET)
    dim: int | None = field(default=None, metadata=_IF_SET)
    checkpoint: str = field(default="", metadata=_LABEL)

    @cached_property
    def key(self) -> str:
        """32 hexadecimal digits: a hash of every deciding field and of the schema version."""
        text = canonical_json({"schema": SCHEMA_VERSION, **_deciding(self)})
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def shift_title(self) -> str:
        """What is streamed, in a few words: `fog 5`, or `continual over 15 shifts`."""
        if len(self.shifts) == 1:
            return self.shifts[0].title
        return f"{self.setting} over {len(self.shifts)} shifts"

    def to_json(self) -> dict[str, Any]:
        """Plain values; the inverse of `from_json`."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Cell:
        """The cell that `to_json` described."""
        given = dict(values)
        given["shifts"] = tuple(CellShift(**shift) for shift in given["shifts"])
        if isinstance(given.get("parameters"), list):
            given["parameters"] = tuple(given["parameters"])
        return Cell(**given)


@dataclass(frozen=True, kw_only=True)
class Record:
    """The outcome of a cell. A failed cell has an `error` and no counts.

    Images that show nothing have no class and are not counted: a batch of a black-out has size 0.

    Attributes:
        samples, wrong: over the whole stream.
        batch_sizes, batch_wrong: for each batch, in the order of the stream.
        batch_task_losses: the mean training loss of each batch's predictions at the true labels.
        shift_samples, shift_wrong: for each of `cell.shifts`.
        class_samples, class_wrong: for each class, where the metric is mean-class-accuracy.
        wrong_mask: one bit per sample, 1 if wrong, sorted by shift, then by index in the data set;
            packed and base64-encoded. See `is_wrong`.
        order_digest: names the order of the samples.
        health: updates made and left out.
        warnings: what the adapter warned of, such as a last batch too small for its statistics.
        versions: the versions of Python, torch and the like, and the kind of device.
        timings: seconds, and when the cell started (seconds since 1970).
        peak_memory: in bytes; that of the process on a CPU, else that of the device.
        traceback: where a failed cell failed.
    """

    cell: Cell
    status: Status
    error: str = ""
    samples: int = 0
    wrong: int = 0
    batch_sizes: tuple[int, ...] = ()
    batch_wrong: tuple[int, ...] = ()
    batch_task_losses: tuple[float, ...] = ()
    shift_samples: tuple[int, ...] = ()
    shift_wrong: tuple[int, ...] = ()
    class_samples: tuple[int, ...] = ()
    class_wrong: tuple[int, ...] = ()
    wrong_mask: str = ""
    order_digest: str = ""
    health: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    peak_memory: int | None = None
    traceback: str = ""

    @property
    def key(self) -> str:
        """The key of the cell."""
        return self.cell.key

    @property
    def error_percent(self) -> float:
        """The error of the whole stream by the cell's metric, in percent; NaN for a failed cell.

        >>> cell = Cell(data="d", shifts=(), architecture="a", loss="l", model_digest="m", method="bn")
        >>> Record(cell=cell, status="done", samples=8, wrong=2).error_percent
        25.0
        """
        if self.status != "done" or not self.samples:
            return math.nan
        if self.cell.metric == "accuracy":
            return 100 * self.wrong / self.samples
        pairs = zip(self.class_wrong, self.class_samples, strict=True)
        shares = [wrong / count for wrong, count in pairs if count]
        return 100 * sum(shares) / len(shares)

    @property
    def online_error_curve(self) -> tuple[float, ...]:
        """The error over all samples so far, after each batch, in percent."""
        seen = np.cumsum(self.batch_sizes)
        return tuple((100 * np.cumsum(self.batch_wrong) / seen).tolist()) if len(seen) else ()

    @property
    def is_wrong(self) -> npt.NDArray[np.bool_]:
        """`wrong_mask` as an array, one value per sample."""
        packed = np.frombuffer(base64.b64decode(self.wrong_mask), np.uint8)
        return np.unpackbits(packed, count=self.samples).astype(np.bool_)

    @property
    def seconds(self) -> float:
        """How long the cell took; NaN if it is not known, as after an import."""
        return float(self.timings.get("seconds", math.nan))

    def deterministic_json(self) -> dict[str, Any]:
        """Everything that is equal in two runs of the cell: all but measurements of the machine."""
        values = self.to_json()
        return {name: value for name, value in values.items() if name not in MEASURED}

    def to_json(self) -> dict[str, Any]:
        """Plain values; the inverse of `from_json`. A value that is no number becomes null."""
        values = dataclasses.asdict(self)
        values["batch_task_losses"] = [
            loss if math.isfinite(loss) else None for loss in self.batch_task_losses
        ]
        return values

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Record:
        """The record that `to_json` or `deterministic_json` described."""
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
        }
        given["cell"] = Cell.from_json(values["cell"])
        losses = given.get("batch_task_losses", ())
        given["batch_task_losses"] = tuple(math.nan if loss is None else loss for loss in losses)
        return Record(**given)


MEASURED = ("timings", "peak_memory", "traceback")
"""The fields of a record that differ from run to run; exports leave them out by default."""


def pack_mask(wrong: npt.NDArray[np.bool_]) -> str:
    """Bits as base64 text; the inverse of `Record.is_wrong`."""
    return base64.b64encode(np.packbits(wrong).tobytes()).decode("ascii")


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _deciding(instance: Any) -> dict[str, Any]:
    """The fields that are no labels, with 1.0 written as 1 so that TOML's spelling does not matter."""
    return {
        item.name: _normal(getattr(instance, item.name))
        for item in dataclasses.fields(instance)
        if not item.metadata.get("label")
        and (getattr(instance, item.name) or not item.metadata.get("if_any"))
        and (getattr(instance, item.name) is not None or not item.metadata.get("if_set"))
    }


def _normal(value: Any) -> Any:
    if isinstance(value, CellShift):
        return _deciding(value)
    if isinstance(value, Mapping):
        return {name: _normal(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_normal(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
