"""Adapters whose states travel to another process: run as `saved_states.py FOLDER` it goes on there."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

import fenchel
from fenchel.methods import FIELD_METHODS, STANDARD_METHODS

CASES = {
    **{
        f"{method}-{kind}": (method, kind, "batch")
        for method in STANDARD_METHODS
        for kind in ("sgd", "adam")
    },
    **{f"{method}-adam": (method, "adam", None) for method in FIELD_METHODS},
    "protected-adam": ("protected", "adam", None),
    **{f"conjugate-{kind}-mix": ("conjugate", kind, 0.2) for kind in ("sgd", "adam")},
    "bn-mix": ("bn", "sgd", 0.2),
    "conjugate-nadam": ("conjugate", torch.optim.NAdam, "batch"),
    "memo-adamw-mix": ("memo", torch.optim.AdamW, 0.2),
}


VIEWS = {"input_range": (0, 1)}
OPEN = {"margin": 1.0, "similarity": 1.0}
OPTIONS = {
    "memo": VIEWS,
    "hard": {"threshold": 0.3},
    "eta": OPEN,
    "eata": OPEN,
    "rdumb": {**OPEN, "every": 3},
    "sar": {"margin": 1.0},
    "deyo": {"margin": 1.0, "drop": -1.0},
    "roid": VIEWS,
    "cotta": {**VIEWS, "views": 2},
    "rotta": {**VIEWS, "bank": 8},
    "protected": {"protect": "auto"},
}


def adapter(case):
    """The adapter of a case around the same network everywhere."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 4)
    )
    method, optimizer, statistics = CASES[case]
    options = dict(OPTIONS.get(method, {}))
    if method == "eata":
        options["source_images"] = torch.cat(batches())
    return fenchel.adapt(
        network,
        trained_with=fenchel.PolyLoss(epsilon=6.0),
        method=method,
        optimizer=optimizer,
        learning_rate=0.02,
        statistics=statistics,
        seed=7,
        **options,
    )


def batches():
    generator = torch.Generator().manual_seed(3)
    return list(torch.rand(4, 20, 3, 8, 8, generator=generator))


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    results = {}
    for case in CASES:
        adapted = adapter(case)
        adapted.load_state_dict(torch.load(folder / f"{case}.pt", weights_only=True))
        outputs = [adapted(batch) for batch in batches()[2:]]
        results[case] = {"outputs": torch.stack(outputs), **adapted.state_dict()}
    torch.save(results, folder / "results.pt")
