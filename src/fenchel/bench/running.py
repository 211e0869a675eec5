"""Run one cell: stream, adapt, predict, score. It always runs on one torch thread.

Only `batch.inputs` reaches the adapter; labels are revealed after the prediction.
"""

from __future__ import annotations

import platform
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fenchel import _version
from fenchel.adapters import Adapter, online
from fenchel.adapters.guards import without_minimum_is_meant
from fenchel.api import adapt
from fenchel.bench.memory import PeakMemory
from fenchel.bench.record import Cell, Record, pack_mask
from fenchel.bench.source_data import learned_from_source
from fenchel.bench.sources import Job, ingredients
from fenchel.data.batch import Batch
from fenchel.data.bursts import DEFAULT_BURSTS, NOTHING
from fenchel.data.stream import DEFAULT_ROUNDS, Shift, Stream
from fenchel.losses import Loss, open_loss
from fenchel.models import Checkpoint
from fenchel.models.feeding import FOR_DATA, blamed
from fenchel.models.opening import reproducible
from fenchel.train.outputs import one_row_per_sample

UNNAMED = "conjugate"
"""The method of `fenchel.adapt` where none is named. A protected run of it is that very call."""


def run_job(job: Job) -> Record:
    """Open what the job names and run its cell; whatever goes wrong becomes a failed record."""
    return guarded(job, lambda: ingredients(job))


def guarded(
    job: Job, open_ingredients: Callable[[], tuple[Checkpoint, tuple[Shift, ...]]]
) -> Record:
    """Run a cell with the model and data that the caller opens; a failure becomes a failed record."""
    started = time.time()
    begun = time.perf_counter()
    try:
        with one_thread():
            with reproducible():  # a plugin may hold a network
                for plugin in job.plugins:
                    plugin.load()
            checkpoint, shifts = open_ingredients()
            opened = time.perf_counter()
            record = run_cell(job.cell, checkpoint, shifts, job.device)
    except Exception as error:
        record = failed_record(job, f"{type(error).__name__}: {error}", traceback.format_exc())
        opened = begun
    ended = time.perf_counter()
    timings = {
        "started": started,
        "seconds": ended - begun,
        "opening_seconds": opened - begun,
        "adapting_seconds": ended - opened,
    }
    return replace(record, timings=timings)


def failed_record(job: Job, error: str, trace: str = "") -> Record:
    """The record of a cell that did not finish."""
    return Record(
        cell=job.cell,
        status="failed",
        error=error,
        traceback=trace,
        versions=versions(job.device),
    )


def run_cell(
    cell: Cell, checkpoint: Checkpoint, shifts: Sequence[Shift], device: str = "cpu"
) -> Record:
    """Adapt `checkpoint` over the stream of `cell` and score its predictions."""
    stream = stream_of(cell, shifts, device)
    adapter = adapter_of(cell, checkpoint)
    score = _Score(open_loss(checkpoint.loss_spec), stream)
    with warnings.catch_warnings(record=True) as caught, PeakMemory(device) as memory:
        warnings.simplefilter("always")
        for batch, output in _blaming_the_model(adapter, stream):
            score.add(batch, one_row_per_sample(adapter.settings.logits(output), len(batch)))
    health = adapter.health()
    return replace(
        score.record(cell),
        order_digest=stream.order_digest,
        health={
            "updates": health.updates,
            "skipped_non_finite": health.skipped_non_finite,
            "skipped_none_kept": health.skipped_none_kept,
        },
        warnings=tuple(dict.fromkeys(str(item.message) for item in caught)),
        versions=versions(device),
        peak_memory=memory.peak,
    )


def _blaming_the_model(adapter: Adapter, stream: Iterable[Batch]) -> Iterator[tuple[Batch, Any]]:
    """`online`, with one line for a network that fails on what it is fed."""
    fed: list[Tensor] = []

    def watched() -> Iterator[Batch]:
        for batch in stream:
            fed[:] = [batch.inputs]
            yield batch

    try:
        yield from online(adapter, watched())
    except Exception as error:
        if not fed:
            raise
        raise blamed(error, fed[0], adapter.model, advice=FOR_DATA) from error


def seconds_per_sample(job: Job, batches: int = 2) -> float:
    """The speed of a cell, measured on the last of its first few batches."""
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checkpoint, shifts = ingredients(job)
        adapter = adapter_of(job.cell, checkpoint)
        speed = 0.0
        begun = time.perf_counter()
        stream = islice(stream_of(job.cell, shifts, job.device), batches)
        for batch, _ in _blaming_the_model(adapter, stream):
            ended = time.perf_counter()
            speed, begun = (ended - begun) / len(batch), ended
    return speed


def stream_of(cell: Cell, shifts: Sequence[Shift], device: str) -> Stream:
    """The stream that a cell describes."""
    return Stream(
        shifts=shifts,
        setting=cell.setting,
        order=cell.order,
        batch_size=cell.batch_size,
        seed=cell.seed,
        limit=cell.limit,
        concentration=cell.concentration or 0.1,
        rounds=cell.rounds or DEFAULT_ROUNDS,
        bursts=cell.bursts or DEFAULT_BURSTS,
        device=device,
    )


def adapter_of(cell: Cell, checkpoint: Checkpoint) -> Adapter:
    """The adapter that a cell describes: the bare step, unless the cell says how it is protected."""
    moving: dict[str, Any] = {}
    if cell.protect is not None or cell.optimizer is not None:
        moving = {
            "optimizer": cell.optimizer,
            "learning_rate": cell.learning_rate,
            "temperature": cell.temperature,
            "steps": cell.steps,
            "predict": cell.predict,
            "parameters": cell.parameters,
        }
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in cell.options.items()
    }
    protect: Any = cell.protect or False
    unnamed = cell.protect is not None and cell.method == UNNAMED
    with without_minimum_is_meant():
        return adapt(
            checkpoint.model,
            trained_with=open_loss(checkpoint.loss_spec),
            method=None if unnamed else cell.method,
            protect=protect,
            statistics=cell.statistics,
            episodic=cell.episodic,
            seed=cell.seed,
            logits=cell.logits,
            dim=cell.dim,
            **moving,
            **{**options, **learned_from_source(cell, checkpoint)},
        )


@dataclass
class _Score:
    """Collects the outcome of each sample."""

    loss: Loss
    stream: Stream
    sizes: list[int] = field(default_factory=list)
    task_losses: list[float] = field(default_factory=list)
    wrong: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    labels: list[npt.NDArray[np.int64]] = field(default_factory=list)
    members: list[npt.NDArray[np.int64]] = field(default_factory=list)
    indices: list[npt.NDArray[np.int64]] = field(default_factory=list)

    def add(self, batch: Batch, logits: Tensor) -> None:
        """Compare the predictions of a batch with its labels; images that show nothing have none."""
        labels = batch.reveal_labels()
        shows = labels != NOTHING
        labels, logits = labels[shows], logits[shows]
        with torch.no_grad():
            losses = self.loss(logits, self.loss.labels.targets(labels)).double()
        predicted = self.loss.labels.predictions(self._possible(logits))
        rows = shows.cpu().numpy()
        self.sizes.append(len(labels))
        self.task_losses.append(float(losses.mean()))  # NaN for a batch that shows nothing
        self.wrong.append((predicted != labels).cpu().numpy())
        self.labels.append(labels.cpu().numpy())
        self.members.append(batch.reveal_shifts()[rows])
        self.indices.append(batch.reveal_indices()[rows])

    def _possible(self, logits: Tensor) -> Tensor:
        """Scores of the classes that can occur; a model of more classes must not name the others."""
        mask = self.stream.shifts[0].dataset.class_mask
        if mask is None:
            return logits
        return logits.masked_fill(~torch.from_numpy(mask).to(logits.device), -torch.inf)

    def record(self, cell: Cell) -> Record:
        """The counts of a finished stream."""
        wrong, labels = np.concatenate(self.wrong), np.concatenate(self.labels)
        members = np.concatenate(self.members)
        by_place = np.lexsort((np.concatenate(self.indices), members))
        shifts = len(self.stream.shifts)
        classes = len(self.stream.shifts[0].dataset.classes)
        by_class = cell.metric == "mean-class-accuracy"
        return Record(
            cell=cell,
            status="done",
            samples=len(wrong),
            wrong=int(wrong.sum()),
            batch_sizes=tuple(self.sizes),
            batch_wrong=tuple(int(part.sum()) for part in self.wrong),
            batch_task_losses=tuple(self.task_losses),
            shift_samples=_counts(members, shifts),
            shift_wrong=_counts(members[wrong], shifts),
            class_samples=_counts(labels, classes) if by_class else (),
            class_wrong=_counts(labels[wrong], classes) if by_class else (),
            wrong_mask=pack_mask(wrong[by_place]),
        )


def _counts(values: npt.NDArray[np.int64], length: int) -> tuple[int, ...]:
    return tuple(np.bincount(values, minlength=length).tolist())


def versions(device: str) -> dict[str, str]:
    """Versions and machine: what a result may depend on besides its cell."""
    return {
        "fenchel": _version.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": f"{sys.platform} {platform.machine()}",
        "device": torch.device(device).type,
    }


@contextmanager
def one_thread() -> Iterator[None]:
    """Parallelism is over cells: sums come out the same however many workers there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
