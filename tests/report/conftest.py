"""A results store without a network: records made up by a rule, so that every number is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fenchel.bench.plan import Request
from fenchel.bench.record import Cell, CellShift, Record, pack_mask
from fenchel.bench.store import Store

IMAGES = 200
BATCH_SIZE = 50
RATES = {"source": 0.5, "bn": 0.3, "entropy": 0.25, "conjugate": 0.2}


def cell(
    method: str, shift: str, severity: int | None = 5, seed: int = 0, **changes: object
) -> Cell:
    moves = method not in ("source", "bn")
    values: dict[str, object] = {
        "data": "digits",
        "shifts": (
            CellShift(name=shift, severity=severity, dataset="digits", split="test", digest="d"),
        ),
        "batch_size": BATCH_SIZE,
        "seed": seed,
        "architecture": "network",
        "loss": "poly:epsilon=6",
        "model_digest": "m" * 64,
        "method": method,
        "temperature": 1.0 if moves else None,
        "optimizer": "sgd" if moves else None,
        "learning_rate": 0.01 if moves else None,
    }
    return Cell(**{**values, **changes})  # type: ignore[arg-type]


def record(made: Cell, rate: float | None = None) -> Record:
    """Every image is wrong whose own number lies below the rate: methods are nested, seeds differ."""
    rate = RATES[made.method] if rate is None else rate
    masks = [
        np.random.default_rng(made.seed + 10 * k).random(IMAGES) < rate
        for k, _ in enumerate(made.shifts)
    ]
    wrong = np.concatenate(masks)
    batches = np.split(wrong, len(wrong) // BATCH_SIZE)
    return Record(
        cell=made,
        status="done",
        samples=len(wrong),
        wrong=int(wrong.sum()),
        batch_sizes=tuple(map(len, batches)),
        batch_wrong=tuple(int(batch.sum()) for batch in batches),
        batch_task_losses=tuple(1 + float(batch.mean()) for batch in batches),
        shift_samples=tuple(map(len, masks)),
        shift_wrong=tuple(int(mask.sum()) for mask in masks),
        wrong_mask=pack_mask(wrong),
        versions={"torch": "2"},
        timings={"seconds": 1.5},
    )


def failed(made: Cell, error: str) -> Record:
    return Record(cell=made, status="failed", error=error, traceback=f"Traceback: {error}")


def store_in(
    folder: Path, records: Sequence[Record], also: Sequence[Request] = (), name: str = "results"
) -> Path:
    """Write records to a store, each under the name of its method and under further ones."""
    path = folder / f"{name}.sqlite"
    with Store(path) as store:
        for item in records:
            names = [Request(item.key, item.cell.method)]
            store.add_record(item, [*names, *(a for a in also if a.key == item.key)])
    return path


@pytest.fixture
def make_store(tmp_path: Path) -> Callable[..., Path]:
    """`store_in` the folder of the test."""
    return partial(store_in, tmp_path)


@pytest.fixture(scope="session")
def made() -> SimpleNamespace:
    """`cell`, `record` and `failed`, to make up results, and `store_in` to keep them."""
    return SimpleNamespace(cell=cell, record=record, failed=failed, store_in=store_in)


@pytest.fixture(scope="session")
def usual_records() -> tuple[Record, ...]:
    return tuple(
        record(cell(method, shift, seed=seed))
        for method in RATES
        for shift in ("fog", "snow")
        for seed in (0, 1)
    )
