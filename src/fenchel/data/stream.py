"""Streams: what an adapter gets at test time, batch by batch.

A stream is data set x shift x seed. Only `batch.inputs` is meant for the adapter; `batch.reveal_labels()`
gives the labels, for the metrics alone. Batches are read on demand, so a stream over a data set of any
size holds one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fenchel.data.base import Dataset, Indices, Labels
from fenchel.data.corruptions import TEST_CORRUPTIONS
from fenchel.data.orders import ORDERS, shuffle
from fenchel.data.registry import DATASETS, load
from fenchel.data.shifts import corrupted
from fenchel.files import digest_of
from fenchel.names import parse_spec, unknown

SETTINGS: Mapping[str, str] = {
    "reset": "one shift after the other, the adapter reset before each (the paper's)",
    "continual": "one shift after the other, never reset",
    "gradual": "each corruption rises from the lowest severity to the highest and falls again",
    "mixed": "samples of all shifts shuffled together",
    "recurring": "one shift after the other, the whole round several times, never reset",
}
DEFAULT_BATCH_SIZE = 200
DEFAULT_ROUNDS = 3


@dataclass(frozen=True)
class Shift:
    """A data set as it is streamed, and its corruption (`severity` None: it has none)."""

    name: str
    severity: int | None
    dataset: Dataset

    def record(self) -> dict[str, Any]:
        """Plain facts for a results store."""
        return {
            "name": self.name,
            "severity": self.severity,
            "dataset": self.dataset.name,
            "split": self.dataset.split,
            "origin": self.dataset.origin,
            "digest": self.dataset.digest,
        }


def shift_to(dataset: Dataset) -> Shift:
    """The shift that is a data set of its own, such as MNIST for a model of SVHN."""
    return Shift(dataset.name, None, dataset)


def corruption_shifts(
    source: str | Dataset,
    *,
    corruptions: Sequence[str] = TEST_CORRUPTIONS,
    severities: Sequence[int] = (5,),
    root: str | Path | None = None,
    seed: int = 0,
    textures: str | Path | None = None,
) -> tuple[Shift, ...]:
    """Every corruption at every severity, of a data set or of a name.

    Names whose data sets are corrupted already (`cifar10-c`, `imagenet-c`) are loaded; anything
    else is corrupted on the fly. By default the fifteen test corruptions at severity 5.
    """
    pairs = [(corruption, severity) for corruption in corruptions for severity in severities]
    if isinstance(source, str):
        name, written = parse_spec(source)
        open_options = set(DATASETS[name].options) - set(written)
        if "corruption" in DATASETS[name].options:
            given: dict[str, Any] = {"seed": seed, "textures": textures}
            made = {option: value for option, value in given.items() if option in open_options}
            return tuple(
                Shift(c, s, load(source, root=root, corruption=c, severity=s, **made))
                for c, s in pairs
            )
        source = load(source, root=root)
    return tuple(
        Shift(c, s, corrupted(source, c, s, seed=seed, textures=textures)) for c, s in pairs
    )


@dataclass(frozen=True)
class Batch:
    """One batch: `inputs` for the adapter, the rest for scoring.

    Attributes:
        inputs: float32 (B, C, H, W) in [0, 1] for images, (B, D) for vectors.
        number: the number of the batch in the stream, from 0.
        shift: name of the shift, or "mixed".
        severity: the severity of the shift; None where there is none, or several.
        reset: whether the adapter should forget what it learned before this batch.
    """

    inputs: torch.Tensor
    number: int
    shift: str
    severity: int | None
    reset: bool
    _labels: Labels = field(repr=False)
    _members: Indices = field(repr=False)
    _indices: Indices = field(repr=False)

    def __len__(self) -> int:
        return len(self._labels)

    def reveal_labels(self) -> torch.Tensor:
        """int64 (B,): the true classes. For metrics, after the prediction was made."""
        return torch.from_numpy(self._labels.copy()).to(self.inputs.device)

    def reveal_shifts(self) -> Indices:
        """int64 (B,): the position in `stream.shifts` of each sample's shift."""
        return np.array(self._members)

    def reveal_indices(self) -> Indices:
        """int64 (B,): the index of each sample in the data set of its shift."""
        return np.array(self._indices)


@dataclass(frozen=True)
class _Segment:
    """Shifts that are presented together: one, or all of them in the mixed setting."""

    members: tuple[int, ...]  # positions in stream.shifts
    reset: bool


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Batches over shifts, in an order that depends on the seed alone.

    Attributes:
        shifts: what is streamed; all of one input shape and number of classes.
        setting: reset, continual, gradual, mixed or recurring; see `SETTINGS`.
        rounds: how often a recurring stream goes through all shifts.
        order: shuffled, sorted, dirichlet or stored; see `fenchel.data.orders`.
        batch_size: samples per batch; the last batch of a shift may be smaller.
        seed: decides the order, and nothing else does: every shift has the same one.
        limit: the size of a random subset of the images, the same subset for each shift.
        concentration: that of the Dirichlet order; small means strongly correlated labels.
        device: where the inputs are put.

    >>> from fenchel.data import load
    >>> stream = Stream(shifts=[shift_to(load("gaussians", samples=10))], batch_size=4)
    >>> [len(batch) for batch in stream]
    [4, 4, 2]
    """

    shifts: Sequence[Shift]
    setting: str = "reset"
    rounds: int = DEFAULT_ROUNDS
    order: str = "shuffled"
    batch_size: int = DEFAULT_BATCH_SIZE
    seed: int = 0
    limit: int | None = None
    concentration: float = 0.1
    device: str | torch.device = "cpu"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shifts", tuple(self.shifts))
        if self.setting not in SETTINGS:
            raise unknown("setting", self.setting, SETTINGS)
        if self.order not in ORDERS:
            raise unknown("order", self.order, ORDERS)
        if self.batch_size < 1 or (self.limit is not None and self.limit < 1):
            raise ValueError(
                f"batch size and limit must be at least 1; got {self.batch_size}, {self.limit}."
            )
        if self.rounds < 1:
            raise ValueError(f"a stream has at least one round; got rounds={self.rounds!r}.")
        if not self.shifts:
            raise ValueError("a stream needs at least one shift; got none.")
        first = self.shifts[0].dataset
        for shift in self.shifts:
            theirs = (shift.dataset.shape, len(shift.dataset.classes))
            if theirs != (first.shape, len(first.classes)):
                raise ValueError(
                    "the shifts of a stream must agree in input shape and number of classes; "
                    f"{self.shifts[0].name} has {(first.shape, len(first.classes))}, "
                    f"{shift.name} has {theirs}."
                )
        _ = self._segments  # the gradual setting may refuse its severities

    def __len__(self) -> int:
        """The number of batches."""
        lengths = [len(self._places(segment)[0]) for segment in self._segments]
        return sum(-(-length // self.batch_size) for length in lengths)

    @property
    def samples(self) -> int:
        """The number of samples, all shifts together."""
        return sum(len(self._places(segment)[0]) for segment in self._segments)

    def __iter__(self) -> Iterator[Batch]:
        number = 0
        for segment in self._segments:
            members, indices = self._places(segment)
            for begin in range(0, len(indices), self.batch_size):
                chosen = slice(begin, begin + self.batch_size)
                reset = segment.reset and begin == 0
                yield self._batch(segment, members[chosen], indices[chosen], number, reset)
                number += 1

    def record(self) -> dict[str, Any]:
        """The protocol as plain facts, with a digest of the order, for a results store."""
        return {
            "setting": self.setting,
            **({"rounds": self.rounds} if self.setting == "recurring" else {}),
            "order": self.order,
            "concentration": self.concentration if self.order == "dirichlet" else None,
            "seed": self.seed,
            "batch_size": self.batch_size,
            "limit": self.limit,
            "samples": self.samples,
            "order_digest": self.order_digest,
            "shifts": [shift.record() for shift in self.shifts],
        }

    @cached_property
    def order_digest(self) -> str:
        """A hash of which sample of which shift comes when."""
        return digest_of(*(part for segment in self._segments for part in self._places(segment)))

    @cached_property
    def _segments(self) -> tuple[_Segment, ...]:
        everything = tuple(range(len(self.shifts)))
        if self.setting == "mixed":
            return (_Segment(everything, reset=True),)
        positions = self._ramp() if self.setting == "gradual" else list(everything)
        if self.setting == "recurring":
            positions = positions * self.rounds
        every = self.setting == "reset"
        return tuple(_Segment((k,), reset=every or n == 0) for n, k in enumerate(positions))

    def _ramp(self) -> list[int]:
        """Each corruption's shifts from weak to strong and back: 1 2 3 4 5 4 3 2 1."""
        groups: dict[str, list[int]] = {}
        for position, shift in enumerate(self.shifts):
            groups.setdefault(shift.name, []).append(position)
        ramp: list[int] = []
        for name, positions in groups.items():
            severities = [self.shifts[k].severity for k in positions]
            if None in severities or len(set(severities)) < 2:
                raise ValueError(
                    f"the gradual setting needs several severities of each corruption; {name} has "
                    f"{severities}. Pass severities=(1, 2, 3, 4, 5)."
                )
            rising = sorted(positions, key=lambda k: self.shifts[k].severity or 0)
            ramp += [*rising, *rising[-2::-1]]
        return ramp

    def _places(self, segment: _Segment) -> tuple[Indices, Indices]:
        """For each sample of a segment, in order: its shift and its index there."""
        chosen = [self._subset(len(self.shifts[k].dataset)) for k in segment.members]
        counts = [len(indices) for indices in chosen]
        members = np.repeat(np.array(segment.members, np.int64), counts)
        indices = np.concatenate(chosen)
        datasets = (self.shifts[k].dataset for k in segment.members)
        labels = np.concatenate(
            [dataset.labels[rows] for dataset, rows in zip(datasets, chosen, strict=True)]
        )
        order = ORDERS[self.order](labels, self.seed, self.concentration)
        return members[order], indices[order]

    def _subset(self, count: int) -> Indices:
        if self.limit is None or self.limit >= count:
            return np.arange(count)
        return np.sort(shuffle(self.seed, count)[: self.limit])

    def _batch(
        self, segment: _Segment, members: Indices, indices: Indices, number: int, reset: bool
    ) -> Batch:
        first = self.shifts[members[0]].dataset
        inputs = np.empty((len(indices), *first.shape), np.uint8 if first.is_images else np.float32)
        labels = np.empty(len(indices), np.int64)
        for member in np.unique(members):
            rows = np.flatnonzero(members == member)
            dataset = self.shifts[member].dataset
            inputs[rows] = dataset.read(indices[rows])
            labels[rows] = dataset.labels[indices[rows]]
        alone = self.shifts[segment.members[0]] if len(segment.members) == 1 else None
        return Batch(
            inputs=as_inputs(inputs, self.device),
            number=number,
            shift=alone.name if alone else "mixed",
            severity=alone.severity if alone else None,
            reset=reset,
            _labels=labels,
            _members=members,
            _indices=indices,
        )


def as_inputs(
    inputs: np.ndarray[Any, np.dtype[Any]], device: str | torch.device = "cpu"
) -> torch.Tensor:
    """What a model takes: uint8 (B, H, W, C) to float32 (B, C, H, W) in [0, 1]; vectors as is."""
    tensor = torch.from_numpy(inputs).to(device)
    if tensor.dtype != torch.uint8:
        return tensor
    return tensor.permute(0, 3, 1, 2).to(torch.float32).div_(255).contiguous()
