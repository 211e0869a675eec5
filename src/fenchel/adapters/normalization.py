"""Normalisation layers: how they are found, and which statistics they use.

The user's model is never modified. What runs is a skeleton of it: the same modules, sharing every
tensor, in which batch-normalisation layers may be switched to other statistics.
"""

from __future__ import annotations

import copy
import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

Statistics = Literal["auto", "batch", "source"] | str | float
"""Which statistics batch-normalisation layers use:

- "batch" or "source";
- "auto": those of the stream where a layer's input has moved, the source's where it has not (`suited`);
- a number in (0, 1): running statistics, which every batch enters with this weight;
- "mix:0.1": the source's and, with this weight, those of the batch (`mixing`); no earlier batch counts;
- "note" or "note:4": the source's, corrected for every sample whose own lie far away (`instance`).
"""

RULES: dict[str, float | None] = {"mix": None, "note": 4.0}
"""Statistics that are a rule and its number, with the number that each takes by default."""

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


def rule_of(statistics: Statistics) -> tuple[str, float] | None:
    """The name and the number of a rule such as "mix:0.1" or "note:4"; None for other statistics."""
    if not isinstance(statistics, str):
        return None
    name, colon, number = statistics.partition(":")
    if name not in RULES:
        return None
    value = _number(number) if colon else RULES[name]
    if value is None or not 0 < value < math.inf or (name == "mix" and value > 1):
        raise _unknown_statistics(statistics)
    return name, value


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
