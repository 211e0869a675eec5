"""Training examples in memory: uint8 images or float vectors, with labels, cut into parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fenchel.data import Dataset
from fenchel.train.augmentation import Augmentation
from fenchel.train.seeds import generator

MEMORY_LIMIT = 4 * 2**30
"""Data sets above this many bytes are read batch by batch instead of being held in memory."""


@dataclass(frozen=True)
class Examples:
    """Some rows of a data set, ready to be cut into batches.

    `held` is the whole data set's inputs, or None when they are read on demand.
    """

    dataset: Dataset
    rows: Tensor
    labels: Tensor
    held: Tensor | None

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, positions: Tensor) -> Tensor:
        """Inputs at `positions` of these examples: uint8 (B, H, W, C) or float (B, D)."""
        rows = self.rows[positions]
        if self.held is not None:
            return self.held[rows.to(self.held.device)]
        return torch.from_numpy(self.dataset.read(rows.numpy()))

    def part(self, positions: Tensor) -> Examples:
        """The examples at `positions`, sharing the inputs."""
        return Examples(self.dataset, self.rows[positions], self.labels[positions], self.held)


def hold(dataset: Dataset, device: torch.device, limit: int | None = None) -> Examples:
    """All examples of `dataset` (or its first `limit`), their inputs in memory if they fit."""
    count = len(dataset) if limit is None else min(limit, len(dataset))
    if count < 1:
        raise ValueError(f"training needs at least one example; got limit={limit}. Raise it.")
    width = 1 if dataset.is_images else 4
    fits = count * int(np.prod(dataset.shape)) * width <= MEMORY_LIMIT
    held = torch.from_numpy(dataset.read(np.arange(count))).to(device) if fits else None
    labels = torch.from_numpy(dataset.labels[:count].copy()).to(device)
    return Examples(dataset, torch.arange(count), labels, held)


def hold_out(examples: Examples, share: float, seed: int) -> tuple[Examples, Examples | None]:
    """Cut `share` of the examples off at random: (for training, held out or None)."""
    if share == 0:
        return examples, None
    order = torch.randperm(len(examples), generator=generator(seed, "held-out"))
    cut = round(share * len(examples))
    if not 0 < cut < len(examples):
        raise ValueError(
            f"both parts of a split need examples; {share} of {len(examples)} leaves one empty. "
            "Hold out another share."
        )
    return examples.part(order[cut:].sort().values), examples.part(order[:cut].sort().values)


def channel_statistics(examples: Examples, block: int = 1000) -> tuple[list[float], list[float]]:
    """Mean and deviation of each channel in [0, 1], exactly, from counts of the 256 values."""
    channels = examples.dataset.shape[-1]
    counts = torch.zeros(channels, 256, dtype=torch.int64)
    for positions in torch.split(torch.arange(len(examples)), block):
        images = examples.read(positions).cpu()
        for channel in range(channels):
            counts[channel] += torch.bincount(images[..., channel].flatten(), minlength=256)
    values = torch.arange(256, dtype=torch.float64) / 255
    shares = counts.double() / counts.sum(1, keepdim=True)
    mean = shares @ values
    variance = (shares * (values - mean[:, None]).square()).sum(1)
    # A constant channel (an empty border, a blank test image) must not divide by zero.
    std = variance.sqrt().clamp(min=1 / 255)
    return [round(x, 6) for x in mean.tolist()], [round(x, 6) for x in std.tolist()]


def prepare(inputs: Tensor, augmentation: Augmentation, device: torch.device) -> Tensor:
    """Inputs for evaluation: images without augmentation, vectors as they are."""
    plain = augmentation.plain(inputs) if inputs.dtype == torch.uint8 else inputs
    return plain.to(device, non_blocking=True)
