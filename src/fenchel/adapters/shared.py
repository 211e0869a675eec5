"""Statistics of a batch of which other processes have a part, for layers that use those of the batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fenchel.adapters.mixing import moments, through_batch, values_per_channel
from fenchel.adapters.normalization import batch_norm_layers
from fenchel.adapters.state import Tensors


def use_statistics_of_all(twin: nn.Module, *, every_layer: bool) -> Tensors:
    """Let layers normalise by the statistics of the whole batch; those that have none of their own always do.

    torch's own SyncBatchNorm refuses tensors on a CPU. What the layers use is left in the result, under the
    names of running statistics and with the unbiased variance.
    """
    noted: Tensors = {}
    for name, layer in batch_norm_layers(twin).items():
        if every_layer or layer.running_mean is None:
            whole = _WholeBatch(f"{name}." if name else "", noted)
            layer.register_forward_pre_hook(whole.before)
            layer.register_forward_hook(whole.after)
    return noted


@dataclass
class _WholeBatch:
    """One layer, which puts its own statistics back after its pass."""

    prefix: str
    noted: Tensors
    own: tuple[Tensor | None, Tensor | None] = (None, None)

    def before(self, layer: _BatchNorm, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        first, *others = inputs
        values = values_per_channel(first)
        if values < 2:  # in the words of torch, which are explained elsewhere
            raise ValueError(f"Expected more than 1 value per channel, got {tuple(first.shape)}")
        self.own = layer.running_mean, layer.running_var
        like = layer.running_mean if layer.running_mean is not None else layer.weight
        with torch.no_grad():
            mean, variance = moments(first.detach(), first.dtype if like is None else like.dtype)
            if layer.running_mean is not None:
                self.noted[f"{self.prefix}running_mean"] = mean
                self.noted[f"{self.prefix}running_var"] = variance * (values / (values - 1))
        layer.running_mean, layer.running_var = mean, variance
        return through_batch(layer, first, mean, mean.new_ones(())), *others

    def after(self, layer: _BatchNorm, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        layer.running_mean, layer.running_var = self.own
