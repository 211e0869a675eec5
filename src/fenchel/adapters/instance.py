"""Statistics of every sample: the source's, corrected where a sample's own lie beyond chance."""

from __future__ import annotations

import math
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fenchel.adapters.normalization import batch_norm_layers


def correct_per_sample(twin: nn.Module, reach: float) -> None:
    """Move what a layer uses towards a sample's own statistics by as much as these are out of reach.

    For a sample of L values per channel, with mean m and variance v, they are expected to vary by
    sqrt(variance / L) and variance * sqrt(2 / (L - 1)). What lies within `reach` times that is taken for
    chance: mean + shrink(m - mean, reach * sqrt(variance / L)), likewise for the variance, which stays
    above 0. A sample of one value per channel has no statistics of its own. Gradients flow through them.

    Reference: Gong et al., "NOTE: Robust Continual Test-time Adaptation Against Temporal Correlation",
    NeurIPS 2022 (arXiv 2208.05117).
    """
    for layer in batch_norm_layers(twin).values():
        if layer.running_mean is not None:
            layer.register_forward_pre_hook(partial(_corrected, reach))


def _corrected(
    reach: float, layer: _BatchNorm, inputs: tuple[Tensor, ...]
) -> tuple[Tensor, ...] | None:
    """The input that the layer's own statistics normalise as the corrected ones would the old input.

    So whatever else a layer does, such as an activation after it, it still does.
    """
    first, *others = inputs
    count = math.prod(first.shape[2:])
    if count < 2:
        return None
    over_channels = (1, -1, *[1] * (first.ndim - 2))
    old_mean = cast(Tensor, layer.running_mean).view(over_channels)
    old_variance = cast(Tensor, layer.running_var).view(over_channels)
    x = first.to(old_mean.dtype)
    axes = list(range(2, x.ndim))
    its_variance, its_mean = torch.var_mean(x, axes, correction=1, keepdim=True)
    mean = old_mean + _shrunk(its_mean - old_mean, reach * (old_variance / count).sqrt())
    chance = reach * math.sqrt(2 / (count - 1)) * old_variance
    variance = (old_variance + _shrunk(its_variance - old_variance, chance)).clamp_min(0)
    scale = ((old_variance + layer.eps) / (variance + layer.eps)).sqrt()
    moved = torch.addcmul(old_mean - mean * scale, x, scale)
    return moved.to(first.dtype), *others


def _shrunk(difference: Tensor, chance: Tensor) -> Tensor:
    """What of a difference lies beyond chance, on either side."""
    return difference - difference.clamp(-chance, chance)
