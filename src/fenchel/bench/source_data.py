"""What methods learn from the data that a source model was trained on, made once per model.

The labels of those data are never read.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from torch import Tensor

from fenchel.adapters import METHODS
from fenchel.bench.record import Cell
from fenchel.data import load
from fenchel.data.batch import as_inputs
from fenchel.data.orders import shuffle
from fenchel.methods import Fisher, fisher
from fenchel.models import Checkpoint

SEED = 0
"""Which training images are taken does not depend on the seed of the stream."""
KEPT = 4

_made: OrderedDict[tuple[Any, ...], Fisher] = OrderedDict()


def learned_from_source(cell: Cell, checkpoint: Checkpoint) -> dict[str, Any]:
    """Options of the cell's method that come from training images of its checkpoint; mostly none."""
    cost = METHODS[cell.method].cost
    if cost is None or not cost.needs_source_data or cell.options.get("fisher") is not None:
        return {}
    count = int(str(cell.options["fisher_images"]))
    statistics, parameters = cell.statistics or "batch", cell.parameters or "normalization"
    wanted = (cell.model_digest, statistics, parameters, count)
    if wanted not in _made:
        images = _training_images(cell, checkpoint, count)
        _made[wanted] = fisher(
            checkpoint.model, images, statistics=statistics, parameters=parameters
        )
        while len(_made) > KEPT:
            _made.popitem(last=False)
    return {"fisher": _made[wanted]}


def _training_images(cell: Cell, checkpoint: Checkpoint, count: int) -> Tensor:
    """A random subset of the training split."""
    data = checkpoint.metadata.data
    if data is None:
        raise ValueError(
            f"method {cell.method!r} needs images that the source model was trained on, and the checkpoint "
            f"{cell.checkpoint!r} does not say which. Give the method a file of Fisher information: fisher "
            "= 'FILE.safetensors'."
        )
    dataset = load(data, split="train")
    rows = shuffle(SEED, len(dataset))[:count]
    return as_inputs(dataset.read(rows), next(checkpoint.model.parameters()).device)
