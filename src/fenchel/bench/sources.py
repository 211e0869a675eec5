"""Where a cell's model and data come from, and how a process keeps them between cells.

A `Job` is a cell and where its model and data are; it is small and plain, so it can be sent to any
process. What is opened is compared with the digests in the cell, so a file that was replaced during
a sweep makes cells fail instead of producing numbers under a wrong name.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fenchel.bench.record import Cell
from fenchel.bench.sweep import DataChoice, ModelChoice
from fenchel.data import DATASETS, Dataset, corrupted, load
from fenchel.data.base import ArrayReader, Indices, Reader
from fenchel.data.settings import ROUND_TRIP
from fenchel.data.stream import Shift, shift_to
from fenchel.files import file_digest
from fenchel.models import Checkpoint, open_model
from fenchel.models.checkpoint import FILE_NAME
from fenchel.models.opening import read_spec, weights_file
from fenchel.names import parse_spec
from fenchel.own_code import located, read_reference
from fenchel.plugins import Plugin

KEPT_MODELS, KEPT_SHIFTS, KEPT_CLEAN = 8, 16, 2
REMEMBERED_BYTES = 2**26  # of each kept shift: CIFAR fits
LATEST_BYTES = 2**29  # of one shift at a time: some thousand photographs; more are read again


@dataclass(frozen=True)
class ShiftSource:
    """How to open one shift: a data set, and its corruption if it has one."""

    data: DataChoice
    corruption: str | None = None
    severity: int | None = None

    @property
    def file(self) -> ShiftSource:
        """What must be read to make this shift: the clean data set if it is corrupted on the fly."""
        return self if self.data.exists_corrupted else replace(self, corruption=None, severity=None)

    def open(self) -> Shift:
        """The shift, with its inputs still on disk wherever the data set allows it."""
        return self.made_of(opened_file(self.file))

    def made_of(self, dataset: Dataset) -> Shift:
        """The shift, given what `file` names."""
        if self.corruption is None or self.severity is None:
            return shift_to(dataset)
        if not self.data.exists_corrupted:
            dataset = corrupted(
                dataset,
                self.corruption,
                self.severity,
                constants=self.data.constants,
                seed=self.data.noise_seed,
                textures=self.data.textures,
            )
        return Shift(self.corruption, self.severity, dataset)


@dataclass(frozen=True)
class ModelSource:
    """How to open a model: what `fenchel.models.open_model` takes, with whole paths."""

    name: str
    weights: str | None = None
    trained_with: str | None = None

    @staticmethod
    def of(choice: ModelChoice, folder: Path) -> ModelSource:
        """The model of a sweep, whose files lie in `folder`."""
        found = read_spec(choice.name, folder)
        name = found.name if found.kind == "checkpoint" else located(choice.name, folder)
        weights = None if choice.weights is None else str(weights_file(choice.weights, folder))
        loss = None if choice.trained_with is None else located(choice.trained_with, folder)
        return ModelSource(name, weights, loss)

    def open(self, device: str) -> Checkpoint:
        """The model, set to evaluate."""
        return open_model(
            self.name, weights=self.weights, trained_with=self.trained_with, device=device
        )

    def files(self) -> tuple[Path, ...]:
        """The files whose digests a cell records: those of code of one's own, and the weights."""
        code = read_spec(self.name).files
        weights = () if self.weights is None else (Path(self.weights),)
        own_loss = None if self.trained_with is None else read_reference(self.trained_with)
        loss = () if own_loss is None or own_loss.file is None else (own_loss.file,)
        return (*code, *weights, *loss)

    def digests(self) -> dict[str, str]:
        """The digests of those that are there, by their names; with the folder where two share a name."""
        files = dict.fromkeys(file for file in self.files() if file.is_file())
        names = [file.name for file in files]
        return {
            file.name
            if names.count(file.name) == 1
            else f"{file.parent.name}/{file.name}": _digest_at(file, written_at(file))
            for file in files
        }

    def written(self) -> tuple[int, ...]:
        """When each of its files was written, so that one that was replaced is read again."""
        return tuple(written_at(file) for file in (Path(self.name), *self.files()))


@lru_cache(maxsize=KEPT_SHIFTS)
def _digest_at(file: Path, written: int) -> str:
    return file_digest(file)


@dataclass(frozen=True)
class Job:
    """A cell and where its model and data are. `samples` is the length of its stream.

    `plugins` are those of the process that planned it: a worker loads them before anything else.
    """

    cell: Cell
    model: ModelSource
    shifts: tuple[ShiftSource, ...]
    samples: int
    device: str = "cpu"
    plugins: tuple[Plugin, ...] = ()


def shift_sources(data: DataChoice) -> tuple[ShiftSource, ...]:
    """Every corruption at every severity, or the data set itself."""
    pairs = [(name, severity) for name in data.corruption_names for severity in data.severities]
    if not pairs:
        return (ShiftSource(_shared(data)),)
    return tuple(ShiftSource(_shared(data), *pair) for pair in pairs)


def streams_of(data: DataChoice, setting: str) -> tuple[tuple[ShiftSource, ...], ...]:
    """One stream per shift where the adapter is reset between shifts; else one stream over all of them."""
    shifts = shift_sources(data)
    if setting == "reset":
        return tuple((shift,) for shift in shifts)
    clean = shift_sources(data.clean) if setting == ROUND_TRIP else ()
    return ((*clean, *shifts),)


def _shared(data: DataChoice) -> DataChoice:
    """The choice without what differs between shifts of one data set, so that they share a cache."""
    return replace(data, corruptions="none", severities=(5,), limit=None)


@lru_cache(maxsize=KEPT_MODELS)
def opened_model(
    source: ModelSource, device: str, written: tuple[int, ...]
) -> tuple[Checkpoint, str]:
    """A model and its digest, kept for the cells to come: no cell modifies a model.

    `written` is `source.written()`, so that a file that was replaced is read again.
    """
    model = source.open(device)
    return model, model.digest


def written_at(path: str | Path) -> int:
    """When a checkpoint (a file, or the folder of a training run) was written; 0 if it is not there."""
    file = Path(path, FILE_NAME) if Path(path).is_dir() else Path(path)
    return file.stat().st_mtime_ns if file.is_file() else 0


@lru_cache(maxsize=KEPT_SHIFTS)
def opened_shift(source: ShiftSource) -> Shift:
    """A shift, kept for the cells to come, which read the same images again."""
    return remembering(source.open())


def remembering(shift: Shift) -> Shift:
    """The shift with images kept once they are made, where making them costs more than memory."""
    dataset = shift.dataset
    bytes_needed = len(dataset) * int(np.prod(dataset.shape)) * (1 if dataset.is_images else 4)
    if isinstance(dataset.reader, ArrayReader) or bytes_needed > LATEST_BYTES:
        return shift
    kind = RememberingReader if bytes_needed <= REMEMBERED_BYTES else LatestReader
    reader = kind(dataset.reader, len(dataset))
    return replace(shift, dataset=replace(dataset, reader=reader))


@lru_cache(maxsize=KEPT_CLEAN)
def opened_file(source: ShiftSource) -> Dataset:
    """The data set that `ShiftSource.file` names, kept while its shifts are made."""
    options: dict[str, Any] = {}
    if source.corruption is not None:
        options = {"corruption": source.corruption, "severity": source.severity}
        options |= _written(source.data)
    return load(source.data.name, root=source.data.root, **options)


def _written(data: DataChoice) -> dict[str, Any]:
    """The noise of a data set that is corrupted on the fly unless its files are there."""
    name, written = parse_spec(data.name)
    wanted = {"seed": data.noise_seed, "textures": data.textures}
    known = set(DATASETS[name].options) - set(written)
    return {option: value for option, value in wanted.items() if option in known}


@dataclass
class RememberingReader:
    """Reads every row once. Images do not depend on the batch they are read in."""

    reader: Reader = field(repr=False)
    length: int
    _rows: npt.NDArray[Any] | None = field(default=None, repr=False)
    _known: npt.NDArray[np.bool_] | None = field(default=None, repr=False)

    def __call__(self, indices: Indices) -> npt.NDArray[Any]:
        """The rows at `indices`, as the reader behind gives them."""
        if self._known is None:
            self._known = np.zeros(self.length, np.bool_)
        missing = np.unique(indices[~self._known[indices]])
        if len(missing) or self._rows is None:
            made = self.reader(missing)
            if self._rows is None:
                self._rows = np.empty((self.length, *made.shape[1:]), made.dtype)
            self._rows[missing] = made
            self._known[missing] = True
        return np.ascontiguousarray(self._rows[indices])


class LatestReader(RememberingReader):
    """The same for photographs: a process keeps those of the shift it read last, and forgets the others."""

    _latest: ClassVar[list[LatestReader]] = []

    def __call__(self, indices: Indices) -> npt.NDArray[Any]:
        """The rows at `indices`, as the reader behind gives them."""
        for other in self._latest:
            if other is not self:
                other._rows = other._known = None
        self._latest[:] = [self]
        return super().__call__(indices)


def ingredients(job: Job) -> tuple[Checkpoint, tuple[Shift, ...]]:
    """Open what a job needs, from files, and refuse what is not what was planned."""
    check_files(job)
    checkpoint, digest = opened_model(job.model, job.device, job.model.written())
    shifts = tuple(opened_shift(source) for source in job.shifts)
    check_digests(job, digest, shifts)
    return checkpoint, shifts


def check_files(job: Job) -> None:
    """Raise ValueError if code or weights changed since the sweep was planned, before they are used."""
    now = job.model.digests()
    for name, planned in job.cell.model_files.items():
        if now.get(name) != planned:
            raise ValueError(
                f"the files of a model must not change during a sweep; {name} of {job.cell.checkpoint} did. "
                "Run the sweep again to use the new one."
            )


def check_digests(job: Job, model_digest: str, shifts: tuple[Shift, ...]) -> None:
    """Raise ValueError if the model or the data changed since the sweep was planned."""
    if model_digest != job.cell.model_digest:
        raise ValueError(
            f"the model must not change during a sweep; {job.model.name} did. Run the sweep again to use the "
            "new one."
        )
    for shift, planned in zip(shifts, job.cell.shifts, strict=True):
        if shift.dataset.digest != planned.digest:
            raise ValueError(
                f"the data must not change during a sweep; {planned.dataset} ({planned.title}) did. Run "
                "the sweep again to use the new files."
            )
