"""Normalisation layers: how they are found, and which statistics they use.

The user's model is never modified. What runs is a skeleton of it: the same modules, sharing every
tensor, in which batch-normalisation layers may be switched to other statistics.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.utils.hooks import RemovableHandle

Statistics = Literal["auto", "batch", "source"] | str | float
"""Which statistics batch-normalisation layers use:

- "batch" or "source";
- "auto": those of the stream where a layer's input has moved, the source's where it has not (`suited`);
- a number in (0, 1): running statistics, which every batch enters with this weight;
- "mix:0.1": the source's and, with this weight, those of the batch; nothing is kept of earlier batches;
- "note" or "note:4": the source's, corrected for every sample whose own lie far away (`instance_aware`).
"""

Rule = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(input, mean, variance) -> the mean and the variance by which a layer normalises the input.

All have the axes of the input; sizes of 1 stand for all entries alike.
"""

KNOWN_LAYERS: tuple[type[nn.Module], ...] = (
    _NormBase,  # batch and instance normalisation, in every dimension, SyncBatchNorm, timm's variants
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)


def is_normalization(module: nn.Module) -> bool:
    """Whether the module is a normalisation layer, torch's own or one that looks like it.

    Libraries bring their own (T5LayerNorm, LlamaRMSNorm): a leaf module with "norm" in the name of its
    class and nothing but vectors for parameters, perhaps shaped (C, 1, 1) to suit images.
    """
    if isinstance(module, KNOWN_LAYERS):
        return True
    own = list(module.parameters(recurse=False))
    leaf = next(module.children(), None) is None
    return (
        leaf
        and "norm" in type(module).__name__.lower()
        and own != []
        and all(sum(size > 1 for size in p.shape) <= 1 for p in own)
    )


def batch_norm_layers(model: nn.Module) -> dict[str, _BatchNorm]:
    """The layers whose statistics a batch may provide, by name."""
    return {
        name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)
    }


def recorded_statistics(model: nn.Module) -> list[str]:
    """The buffers in which torch's normalisation layers record; in a skeleton they write nothing."""
    return [
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        if isinstance(module, _NormBase)
        for name, _ in module.named_buffers(recurse=False)
    ]


def skeleton(model: nn.Module) -> nn.Module:
    """A copy of the modules that shares every tensor, in evaluation mode (dropout off)."""
    shared: dict[int, Any] = {}
    for module in model.modules():
        tensors = [*module._parameters.values(), *module._buffers.values(), *vars(module).values()]
        shared |= {id(tensor): tensor for tensor in tensors if isinstance(tensor, Tensor)}
    try:
        twin = copy.deepcopy(model, shared)
    except Exception as error:
        raise TypeError(
            f"the modules of {type(model).__name__} cannot be copied ({error}), which adaptation needs so "
            "that your model is never modified. Remove attributes that cannot be copied, such as open "
            "files and locks."
        ) from error
    for module in twin.modules():
        if isinstance(module, nn.GroupNorm):
            module.register_forward_pre_hook(_safe_for_group_norm)
    return twin.eval()


def _safe_for_group_norm(layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Keep PyTorch from crashing: on the CPU, the backward pass of group normalisation follows a null
    pointer when its input lies in channels-last memory and needs no gradient (seen in 2.13).
    """
    first, *others = inputs
    return inputs if first.requires_grad else (first.contiguous(), *others)


def use_batch_statistics(twin: nn.Module) -> nn.Module:
    """Let the skeleton's batch-normalisation layers use the batch and keep no record of it."""
    for layer in batch_norm_layers(twin).values():
        layer.training = True
        layer.track_running_stats = False
    return twin


def note_statistics(twin: nn.Module) -> dict[str, Tensor]:
    """Let layers that use the batch's statistics note them, in tensors that every pass overwrites.

    They come at no cost: the layer computes them anyway. The variance is the unbiased one.
    """
    noted = {}
    for name, layer in batch_norm_layers(twin).items():
        if layer.running_mean is None or layer.running_var is None:
            continue
        layer.track_running_stats = True
        layer.momentum = 1.0
        for buffer, value in layer.named_buffers(recurse=False):
            setattr(layer, buffer, torch.zeros_like(value))
            noted[f"{name}.{buffer}".removeprefix(".")] = getattr(layer, buffer)
    return noted


def mixed_names(model: nn.Module) -> list[str]:
    """The running statistics that batches may enter, by name."""
    names = []
    for name, layer in batch_norm_layers(model).items():
        if layer.running_mean is not None:
            names += [f"{name}.running_mean", f"{name}.running_var"]
    return [name.removeprefix(".") for name in names]  # a model may be such a layer itself


def mix_in_statistics(twin: nn.Module, weight: float) -> nn.Module:
    """Let every batch enter the running statistics that the skeleton is given, before their use.

    They are updated in place, layer by layer as a forward pass meets them, and count as constants: no
    gradient flows through them.
    """
    for layer in batch_norm_layers(twin).values():
        if layer.running_mean is not None:
            layer.register_forward_pre_hook(partial(_mix_in, weight))
    return twin


def _mix_in(weight: float, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    with torch.no_grad():
        x = inputs[0].detach().to(layer.running_mean.dtype)  # type: ignore[arg-type]
        axes = [axis for axis in range(x.ndim) if axis != 1]
        count = x.numel() // max(1, x.shape[1])
        variance, mean = torch.var_mean(x, axes, correction=1 if count > 1 else 0)
        layer.running_mean.lerp_(mean, weight)  # type: ignore[operator]
        layer.running_var.lerp_(variance, weight)  # type: ignore[operator]


def adjust_statistics(
    twin: nn.Module, rule: Rule, seen: dict[str, Tensor] | None = None
) -> list[RemovableHandle]:
    """Let a rule make the statistics that the skeleton's batch-normalisation layers use.

    It is given what would be used otherwise, and what it makes may depend on the input, so gradients
    flow through it. `seen` takes in every layer's new statistics, under the names of the old.
    """
    hooks = []
    for name, layer in batch_norm_layers(twin).items():
        if layer.running_mean is not None:
            prefix = f"{name}." if name else ""
            hooks.append(layer.register_forward_pre_hook(partial(_adjust, rule, prefix, seen)))
    return hooks


def _adjust(
    rule: Rule,
    prefix: str,
    seen: dict[str, Tensor] | None,
    layer: _BatchNorm,
    inputs: tuple[Tensor, ...],
) -> tuple[Tensor, ...]:
    """The input that the layer's own statistics normalise as the new ones would normalise the old input.

    So whatever else a layer does, such as an activation after it, it still does.
    """
    first, *others = inputs
    over_channels = (1, -1, *[1] * (first.ndim - 2))
    old_mean = cast(Tensor, layer.running_mean).view(over_channels)
    old_variance = cast(Tensor, layer.running_var).view(over_channels)
    x = first.to(old_mean.dtype)
    mean, variance = rule(x, old_mean, old_variance)
    if seen is not None:
        seen[f"{prefix}running_mean"] = mean.detach().flatten()
        seen[f"{prefix}running_var"] = variance.detach().flatten()
    scale = ((old_variance + layer.eps) / (variance + layer.eps)).sqrt()
    moved = torch.addcmul(old_mean - mean * scale, x, scale)
    return moved.to(first.dtype), *others


def mixed_with_batch(weight: float) -> Rule:
    """(1 - weight) x what is given + weight x the batch's, whose variance is that of batch normalisation."""

    def rule(x: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        axes = [axis for axis in range(x.ndim) if axis != 1]
        its_mean = x.mean(axes, keepdim=True)
        # Not torch.var_mean, which on a CPU takes several times as long over these axes.
        its_variance = (x - its_mean).square().mean(axes, keepdim=True)
        return torch.lerp(mean, its_mean, weight), torch.lerp(variance, its_variance, weight)

    return rule


def instance_aware(reach: float) -> Rule:
    """What is given, moved towards a sample's own statistics by as much as these are out of reach.

    For a sample of L values per channel, with mean m and variance v, they are expected to vary by
    sqrt(variance / L) and variance * sqrt(2 / (L - 1)). What lies within `reach` times that is taken for
    chance: mean + shrink(m - mean, reach * sqrt(variance / L)), likewise for the variance, which stays
    above 0. A sample of one value per channel has no statistics of its own.

    Reference: Gong et al., "NOTE: Robust Continual Test-time Adaptation Against Temporal Correlation",
    NeurIPS 2022 (arXiv 2208.05117).
    """

    def rule(x: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        count = math.prod(x.shape[2:])
        if count < 2:
            return mean, variance
        axes = list(range(2, x.ndim))
        its_variance, its_mean = torch.var_mean(x, axes, correction=1, keepdim=True)
        chance = reach * (variance / count).sqrt()
        mean = mean + _shrunk(its_mean - mean, chance)
        chance = reach * math.sqrt(2 / (count - 1)) * variance
        return mean, (variance + _shrunk(its_variance - variance, chance)).clamp_min(0)

    return rule


def _shrunk(difference: Tensor, chance: Tensor) -> Tensor:
    """What of a difference lies beyond chance, on either side."""
    return difference - difference.clamp(-chance, chance)


RULES: dict[str, tuple[Callable[[float], Rule], float | None]] = {
    "mix": (mixed_with_batch, None),
    "note": (instance_aware, 4.0),
}
"""Rules by the name of the statistics, with the number that each takes by default."""


def rule_of(statistics: Statistics) -> Rule | None:
    """The rule behind "mix:0.1" or "note:4"; None for statistics without one."""
    if not isinstance(statistics, str):
        return None
    name, colon, number = statistics.partition(":")
    if name not in RULES:
        return None
    make, default = RULES[name]
    value = _number(number) if colon else default
    if value is None or not 0 < value < math.inf or (name == "mix" and value > 1):
        raise _unknown_statistics(statistics)
    return make(value)


def is_of_batch(statistics: Statistics) -> bool:
    """Whether a rule makes one mean and variance for a whole batch, not one per sample."""
    return isinstance(statistics, str) and statistics.startswith("mix")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def check_statistics(statistics: object) -> None:
    """Refuse what is no `Statistics`."""
    if isinstance(statistics, str):
        known = statistics in ("auto", "batch", "source") or rule_of(statistics) is not None
    else:
        known = isinstance(statistics, float) and 0 < statistics < 1
    if not known:
        raise _unknown_statistics(statistics)


def _unknown_statistics(statistics: object) -> ValueError:
    return ValueError(
        "statistics must be 'auto', 'batch', 'source', or the weight in (0, 1) with which a batch enters the "
        "running statistics; or else 'mix:A' with the weight A in (0, 1] of the batch beside the source, or "
        f"'note:K' with K > 0; got {statistics!r}."
    )
