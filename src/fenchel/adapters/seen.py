"""The statistics of a whole stream, from those of its batches: what a model needs to predict alone."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fenchel.adapters.state import Tensors

HORIZON = 4096
"""Samples after which older batches begin to count less: the stream may drift, and so do the parameters."""

_MEAN, _VARIANCE, _COUNT = "running_mean", "running_var", "samples"


def with_batch(seen: Tensors, noted: Mapping[str, Tensor], samples: int) -> Tensors:
    """The statistics after one more batch: mean and variance of all samples together.

    A batch counts as its samples do. Batches whose statistics are not finite do not count. Whatever else
    is known of the stream stays.
    """
    if not noted:
        return seen
    means = [name for name in noted if name.endswith(_MEAN)]
    variances = [name.removesuffix(_MEAN) + _VARIANCE for name in means]
    if _COUNT not in seen:
        seen = {**seen, **_nothing({name: noted[name] for name in (*means, *variances)})}
    new_mean = torch.cat([noted[name].to(seen[name].dtype) for name in means])
    new_variance = torch.cat([noted[name].to(seen[name].dtype) for name in variances])
    old_mean = torch.cat([seen[name] for name in means])
    old_variance = torch.cat([seen[name] for name in variances])
    fine = new_mean.isfinite().all() & new_variance.isfinite().all()
    weight = torch.where(fine, samples / (seen[_COUNT] + samples), 0.0).to(old_mean.dtype)
    apart = torch.where(fine, new_mean - old_mean, 0.0)
    within = torch.where(fine, new_variance - old_variance, 0.0)
    mean = old_mean + weight * apart
    variance = old_variance + weight * within + weight * (1 - weight) * apart.square()
    sizes = [noted[name].numel() for name in means]
    return {
        **seen,
        **dict(zip(means, torch.split(mean, sizes), strict=True)),
        **dict(zip(variances, torch.split(variance, sizes), strict=True)),
        _COUNT: (seen[_COUNT] + samples * fine).clamp(max=HORIZON),
    }


def _nothing(like: Mapping[str, Tensor]) -> Tensors:
    """The statistics of no sample at all."""
    zeros = {name: torch.zeros_like(value, dtype=_wide(value)) for name, value in like.items()}
    device = next(iter(zeros.values())).device
    return {**zeros, _COUNT: torch.zeros((), dtype=torch.int64, device=device)}


def stream_statistics(seen: Tensors) -> Tensors:
    """The statistics by the names of the model's own; empty before the first batch."""
    return {name: value for name, value in seen.items() if name.endswith((_MEAN, _VARIANCE))}


def _wide(value: Tensor) -> torch.dtype:
    """Averages over thousands of samples need more digits than half precision has."""
    return torch.promote_types(value.dtype, torch.float32)
