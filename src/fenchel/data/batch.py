"""One batch of a stream: inputs for the adapter; labels apart, for the metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fenchel.data.base import Indices, Labels


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
        """int64 (B,): the true classes. For metrics, after the prediction was made.

        An image that shows nothing has none, but -1: leave it out of every metric.
        """
        return torch.from_numpy(self._labels.copy()).to(self.inputs.device)

    def reveal_shifts(self) -> Indices:
        """int64 (B,): the position in `stream.shifts` of each sample's shift."""
        return np.array(self._members)

    def reveal_indices(self) -> Indices:
        """int64 (B,): the index of each sample in the data set of its shift; -1 if it shows nothing."""
        return np.array(self._indices)


def as_inputs(
    inputs: np.ndarray[Any, np.dtype[Any]], device: str | torch.device = "cpu"
) -> torch.Tensor:
    """What a model takes: uint8 (B, H, W, C) to float32 (B, C, H, W) in [0, 1]; vectors as is."""
    tensor = torch.from_numpy(inputs).to(device)
    if tensor.dtype != torch.uint8:
        return tensor
    return tensor.permute(0, 3, 1, 2).to(torch.float32).div_(255).contiguous()
