"""Adaptation under a learned objective beside others, on images it was not learned on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fenchel.adapters import Optimizer, online
from fenchel.adapters.guards import without_minimum_is_meant
from fenchel.api import adapt
from fenchel.data.stream import Shift, Stream
from fenchel.files import write_atomically
from fenchel.losses import open_loss
from fenchel.models import Checkpoint
from fenchel.objectives import Conjugate, Entropy, Objective
from fenchel.progress import progress

Errors = dict[str, dict[str, float]]
"""Online error in percent, by objective and shift."""


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """How objectives are compared: online, one update per batch, prediction after it, reset at each
    shift, and one optimiser for all of them.
    """

    source: Checkpoint
    shifts: Sequence[Shift]
    optimizer: Optimizer
    batch_size: int = 200
    seed: int = 0
    device: str = "cpu"

    def record(self) -> dict[str, Any]:
        """The protocol as plain facts."""
        return {
            "source": self.source.digest,
            "optimizer": repr(self.optimizer),
            "batch_size": self.batch_size,
            "seed": self.seed,
            "predict": "after",
            "setting": "reset",
            "shifts": [shift.record() for shift in self.shifts],
        }

    def error(self, objective: Objective | None, shift: Shift) -> float:
        """Online error in percent; `None` is the source with the statistics of the batch."""
        with without_minimum_is_meant():
            adapter = adapt(
                self.source.model.to(self.device),
                method="bn" if objective is None else None,
                objective=objective,
                optimizer=self.optimizer,
                protect=False,
            )
        stream = Stream(
            shifts=[shift], batch_size=self.batch_size, seed=self.seed, device=self.device
        )
        wrong = torch.zeros((), dtype=torch.int64, device=self.device)
        for batch, logits in online(adapter, stream):
            wrong += (logits.argmax(-1) != batch.reveal_labels()).sum()
        return 100 * wrong.item() / stream.samples


def baselines(source: Checkpoint) -> dict[str, Objective | None]:
    """The baselines of a learned objective: batch statistics alone, TENT, the conjugate."""
    conjugate = Conjugate(open_loss(source.loss_spec))
    return {"bn": None, "entropy": Entropy(), "conjugate": conjugate}


def score(
    scoring: Scoring, objectives: Mapping[str, Objective | None], file: Path | None = None
) -> Errors:
    """The error of every objective on every shift; what `file` holds of them is not run again."""
    facts = scoring.record()
    identities = {name: repr(objective) for name, objective in objectives.items()}
    known = _known(file, facts)
    errors: Errors = {
        name: dict(known["errors"].get(name, {}))
        if known["objectives"].get(name) == identities[name]
        else {}
        for name in objectives
    }
    missing = [
        (name, shift)
        for shift in scoring.shifts
        for name in objectives
        if label_of(shift) not in errors[name]
    ]
    with progress("scoring", total=len(missing)) as bar:
        for name, shift in missing:
            bar.note(f"{name} on {label_of(shift)}")
            errors[name][label_of(shift)] = scoring.error(objectives[name], shift)
            bar.advance()
            if file is not None:
                kept = {"scoring": facts, "objectives": identities, "errors": errors}
                write_atomically(file, (json.dumps(kept, indent=2) + "\n").encode())
    order = [label_of(shift) for shift in scoring.shifts]
    return {name: {label: by[label] for label in order} for name, by in errors.items()}


def means(errors: Errors) -> dict[str, float]:
    """The mean error over shifts, by objective."""
    return {name: sum(by.values()) / len(by) for name, by in errors.items()}


def label_of(shift: Shift) -> str:
    """A name for one shift among several: `fog 5`, `mnist`."""
    return shift.name if shift.severity is None else f"{shift.name} {shift.severity}"


def _known(file: Path | None, facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Scores of an earlier call under the same protocol."""
    if file is not None and file.is_file():
        kept = json.loads(file.read_text())
        if kept.get("scoring") == facts:
            return {"objectives": kept["objectives"], "errors": kept["errors"]}
    return {"objectives": {}, "errors": {}}
