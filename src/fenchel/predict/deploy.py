"""The adapted model as a file of its own: it predicts alone, and a card says how it was made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from fenchel.adapters import Adapter
from fenchel.files import safetensors_bytes, write_atomically
from fenchel.models import Checkpoint
from fenchel.models.checkpoint import Metadata
from fenchel.predict.run import Outcome
from fenchel.predict.summary import Summary


def save_adapted(
    path: Path,
    network: nn.Module,
    made: Mapping[str, Any],
    *,
    metadata: Metadata | None = None,
) -> None:
    """Write an adapted network: as a checkpoint where it came from one, else its weights by the same names.

    `made` tells how it came about, and is kept in the file.
    """
    if metadata is not None:
        told = {**metadata.recipe, "adapted": dict(made)}
        # What was measured on the source does not hold for this one.
        Checkpoint(network, replace(metadata, recipe=told, metrics={})).save(path)
    else:
        note = {"adapted": json.dumps(dict(made), sort_keys=True)}
        write_atomically(path, safetensors_bytes(network.state_dict(), note))
    write_atomically(path.with_suffix(".md"), _card(path, made).encode())


def how_it_was_made(
    adapter: Adapter, outcome: Outcome, summary: Summary, described: Mapping[str, Any]
) -> dict[str, Any]:
    """What the card and the file of an adapted model record."""
    tally = outcome.tally
    return {
        **{name: value for name, value in described.items() if value is not None},
        "images": tally.predicted,
        "updates": outcome.health.updates,
        "moved": f"{len(adapter.state.parameters)} tensors",
        "normalisation": _statistics(adapter),
        "verdict": summary.verdict,
        "summary": summary.sentence,
    }


def _statistics(adapter: Adapter) -> str:
    """Where the statistics of the file come from, in words."""
    if adapter.state.statistics:
        return f"running statistics of the stream, each batch with weight {adapter.settings.statistics}"
    if adapter.state.seen:
        return (
            "mean and variance over the latest batches of the stream, each weighted by its images"
        )
    return "as in the source model"


def _card(path: Path, made: Mapping[str, Any]) -> str:
    rows = "".join(f"| {name.replace('_', ' ')} | {value} |\n" for name, value in made.items())
    return (
        f"# {path.stem}\n\n"
        "A model adapted to unlabelled images. It predicts alone, in evaluation mode, as the adapter did at "
        "the end of its stream. On other data it may be worse than the model it came from.\n\n"
        f"| | |\n|---|---|\n{rows}"
    )
