"""A batch's statistics beside a layer's own: computed fast, mixed, and differentiated."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from fenchel.adapters.group import Shares, present_shares, rows_of_all
from fenchel.adapters.normalization import batch_norm_layers

Moments = tuple[Tensor, Tensor]
"""Mean and variance, per channel."""


def mix_in_statistics(twin: nn.Module, weight: float) -> nn.Module:
    """Let every batch enter the running statistics that the skeleton is given, before their use.

    They are updated in place, layer by layer as a forward pass meets them, and count as constants: no
    gradient flows through them.
    """
    for layer in batch_norm_layers(twin).values():
        if layer.running_mean is not None:
            layer.register_forward_pre_hook(partial(_mix_in, weight))
    return twin


def _mix_in(weight: float, layer: _BatchNorm, inputs: tuple[Tensor, ...]) -> None:
    old_mean, old_variance = cast(Tensor, layer.running_mean), cast(Tensor, layer.running_var)
    x = inputs[0].detach()
    with torch.no_grad():
        mean, variance = moments(x, old_mean.dtype)
        count = values_per_channel(x)
        old_mean.lerp_(mean, weight)
        old_variance.lerp_(variance * (count / max(1, count - 1)), weight)


def mix_with_batch(
    twin: nn.Module, weight: float, used: dict[str, Tensor]
) -> list[RemovableHandle]:
    """Let the skeleton's layers use (1 - weight) x the statistics they are given + weight x the batch's.

    The variance of the batch is that of batch normalisation, and gradients flow through its
    statistics. `used` takes in what every layer uses, under the names of its running statistics.
    """
    hooks = []
    for name, layer in batch_norm_layers(twin).items():
        if layer.running_mean is not None:
            mixing = _Mixing(weight, f"{name}." if name else "", used)
            hooks.append(layer.register_forward_pre_hook(mixing.before))
            hooks.append(layer.register_forward_hook(mixing.after))
    return hooks


@dataclass
class _Mixing:
    """One layer that uses a mix, and puts its own statistics back after its pass."""

    weight: float
    prefix: str
    used: dict[str, Tensor]
    own: tuple[Tensor | None, Tensor | None] = (None, None)

    def before(self, layer: _BatchNorm, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        first, *others = inputs
        self.own = layer.running_mean, layer.running_var
        old_mean, old_variance = cast(Moments, self.own)
        with torch.no_grad():
            mean, variance = moments(first.detach(), old_mean.dtype)
            layer.running_mean = torch.lerp(old_mean, mean, self.weight)
            layer.running_var = torch.lerp(old_variance, variance, self.weight)
        self.used[f"{self.prefix}running_mean"] = layer.running_mean
        self.used[f"{self.prefix}running_var"] = layer.running_var
        return through_batch(layer, first, mean, mean.new_tensor(self.weight)), *others

    def after(self, layer: _BatchNorm, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        layer.running_mean, layer.running_var = self.own


def moments(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The mean of every channel, and the variance as batch normalisation has it (over n, not n - 1)."""
    mean, variance = _own_moments(x, dtype)
    shares = present_shares()
    return (mean, variance) if shares is None else shares.moments(mean, variance)


def values_per_channel(x: Tensor) -> int:
    """How many values of the whole batch the statistics of a channel are computed from."""
    return rows_of_all(x) * math.prod(x.shape[2:])


def _own_moments(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    x = x.to(torch.promote_types(x.dtype, dtype))
    count = x.numel() // max(1, x.shape[1])
    if x.device.type != "cpu" or count < 2:
        axes = [axis for axis in range(x.ndim) if axis != 1]
        variance, mean = torch.var_mean(x, axes, correction=0)
        return mean, variance
    # Several times as fast on a CPU as torch.var_mean over these axes. With the momentum 1, the running
    # variance is that of the batch, over n - 1.
    mean, variance = x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])
    torch.batch_norm_update_stats(x, mean, variance, 1.0)
    return mean, variance * ((count - 1) / count)


def through_batch(layer: _BatchNorm, x: Tensor, mean: Tensor, share: Tensor) -> Tensor:
    """The input of a layer whose statistics depend on it: the same values, with the whole gradient.

    The batch has the weight `share` in the statistics that the layer holds; `mean` is the mean about
    which the variance counts.
    """
    if not (torch.is_grad_enabled() and x.requires_grad):
        return x
    apply = cast(Callable[..., Tensor], ThroughBatch.apply)
    batch = (values_per_channel(x), present_shares())
    return apply(x, mean, layer.running_mean, layer.running_var, share, layer.eps, *batch)


class ThroughBatch(torch.autograd.Function):
    """The identity, in front of a layer whose statistics depend on its input by way of the batch.

    The layer takes its statistics for constants and so passes back d, the gradient with respect to its
    input at constant statistics. The rest of the gradient follows from d: with `share` the weight of the
    batch in the used mean u and variance v, m the mean of the stream, over n values per channel,

        d - share / n * (sum(d) + (x - m) * sum(d * (x - u)) / (v + eps))

    where the share itself counts as a constant. Both sums and n are over all that have a part of the batch.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        mean: Tensor,
        used: Tensor,
        variance: Tensor,
        share: Tensor,
        eps: float,
        values: int,
        shares: Shares | None,
    ) -> Tensor:
        ctx.save_for_backward(x, mean, used, variance, share)
        ctx.eps, ctx.values, ctx.shares = eps, values, shares
        return x.detach()  # not a view, whose strides mislead torch's backward pass for one sample

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, used, variance, share = ctx.saved_tensors
        # One pass over both: sum(d * (x - u)) / sqrt(v + eps), and sum(d).
        _, aligned, total = torch.ops.aten.native_batch_norm_backward(
            d, x, None, used, variance, None, None, False, ctx.eps, [False, True, True]
        )
        if ctx.shares is not None:
            aligned, total = ctx.shares.sums(aligned, total)
        per_value = share / ctx.values
        slope = -per_value * aligned * torch.rsqrt(variance + ctx.eps)
        offset = -per_value * total - slope * mean
        over = (1, -1, *[1] * (x.ndim - 2))
        gradient = torch.addcmul(d, x, slope.view(over).to(d.dtype))
        gradient.add_(offset.view(over).to(d.dtype))
        if ctx.shares is not None and ctx.shares.own == 0:
            gradient = d  # a row of zeros, which is in no batch
        return gradient, None, None, None, None, None, None, None
