"""Streams: what an adapter gets at test time, batch by batch.

A stream is data set x shift x seed. Only `batch.inputs` is meant for the adapter; `batch.reveal_labels()`
gives the labels, for the metrics alone. Batches are read on demand, so a stream over a data set of any
size holds one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fenchel.data.base import Dataset, Indices
from fenchel.data.batch import Batch, as_inputs
from fenchel.data.bursts import DEFAULT_BURSTS, NOTHING, Bursts, among, parse_bursts
from fenchel.data.corruptions import TEST_CORRUPTIONS
from fenchel.data.orders import ORDERS, shuffle
from fenchel.data.registry import DATASETS, load
from fenchel.data.settings import BURSTS, SETTINGS, Segment, segments_of
from fenchel.data.shifts import corrupted
from fenchel.files import digest_of
from fenchel.names import parse_spec, unknown

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
class _Cut:
    """One batch: which samples of a segment, and how many that show nothing besides."""

    segment: Segment
    begin: int
    end: int
    blanks: int
    number: int


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Batches over shifts, in an order that depends on the seed alone.

    Attributes:
        shifts: what is streamed; all of one input shape and number of classes.
        setting: reset, continual, gradual, mixed, recurring, bursts or clean-then-shift-then-clean, which
            takes the first shift for the clean data; see `SETTINGS`.
        rounds: how often a recurring stream goes through all shifts.
        bursts: what interrupts a stream of that setting: `noise:share=0.2` or `black:every=5,length=2`, in
            batches; see `fenchel.data.bursts`.
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
    bursts: str = DEFAULT_BURSTS
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
        _ = self._segments  # a setting may refuse its shifts
        if self._bursts and not first.is_images:
            raise ValueError(
                f"bursts are of images; {first.name} has vectors of shape {first.shape}. Take another "
                "setting."
            )

    def __len__(self) -> int:
        """The number of batches."""
        return sum(1 for _ in self._cuts())

    @property
    def samples(self) -> int:
        """The number of samples, all shifts together, with those that show nothing."""
        return sum(cut.end - cut.begin + cut.blanks for cut in self._cuts())

    def __iter__(self) -> Iterator[Batch]:
        return (self._batch(cut, *places) for cut, *places in self._blocks())

    def record(self) -> dict[str, Any]:
        """The protocol as plain facts, with a digest of the order, for a results store."""
        return {
            "setting": self.setting,
            **({"rounds": self.rounds} if self.setting == "recurring" else {}),
            **({"bursts": str(self._bursts)} if self._bursts else {}),
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
        if self._bursts:  # which depend on how samples are cut into batches
            return digest_of(*(part for _, *places in self._blocks() for part in places))
        return digest_of(*(part for segment in self._segments for part in self._places(segment)))

    @cached_property
    def _segments(self) -> tuple[Segment, ...]:
        return segments_of(self.setting, self.shifts, self.rounds)

    @cached_property
    def _bursts(self) -> Bursts | None:
        return parse_bursts(self.bursts) if self.setting == BURSTS else None

    def _cuts(self) -> Iterator[_Cut]:
        """Where segments are cut into batches; no label is looked at."""
        number = 0
        for segment in self._segments:
            sizes = [len(self.shifts[k].dataset) for k in segment.members]
            length = sum(sizes if self.limit is None else (min(self.limit, n) for n in sizes))
            begin = 0
            while begin < length:
                blanks = self._bursts.count(number, self.batch_size) if self._bursts else 0
                room = self.batch_size - blanks
                end = min(begin + room, length)
                if end < begin + room:  # the last batch of a shift keeps the share of a full one
                    blanks = round(blanks * (end - begin) / room)
                yield _Cut(segment, begin, end, blanks, number)
                begin, number = end, number + 1

    def _blocks(self) -> Iterator[tuple[_Cut, Indices, Indices]]:
        """For each sample of every batch: its shift and its index there, `NOTHING` if it shows nothing."""
        places: tuple[Indices, Indices] | None = None
        for cut in self._cuts():
            if places is None or cut.begin == 0:
                places = self._places(cut.segment)
            members, indices = (part[cut.begin : cut.end] for part in places)
            if cut.blanks:
                indices = among(indices, cut.blanks, self.seed, cut.number)
                members = np.full(len(indices), cut.segment.members[0], np.int64)
            yield cut, members, indices

    def _places(self, segment: Segment) -> tuple[Indices, Indices]:
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

    def _batch(self, cut: _Cut, members: Indices, indices: Indices) -> Batch:
        first = self.shifts[members[0]].dataset
        size = len(indices)
        inputs = np.empty((size, *first.shape), np.uint8 if first.is_images else np.float32)
        labels = np.full(size, NOTHING, np.int64)
        shown = indices != NOTHING
        for member in np.unique(members[shown]):
            rows = np.flatnonzero((members == member) & shown)
            dataset = self.shifts[member].dataset
            inputs[rows] = dataset.read(indices[rows])
            labels[rows] = dataset.labels[indices[rows]]
        if self._bursts and not shown.all():
            shape = (size - int(shown.sum()), *first.shape)
            inputs[~shown] = self._bursts.images(shape, self.seed, cut.number)
        together = cut.segment.members
        alone = self.shifts[together[0]] if len(together) == 1 else None
        return Batch(
            inputs=as_inputs(inputs, self.device),
            number=cut.number,
            shift=alone.name if alone else "mixed",
            severity=alone.severity if alone else None,
            reset=cut.segment.reset and cut.begin == 0,
            _labels=labels,
            _members=members,
            _indices=indices,
        )
