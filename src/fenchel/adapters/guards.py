"""Checks that keep adaptation from failing obscurely or making things silently worse."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

SMALL_BATCH = 16


class AdaptationWarning(UserWarning):
    """Adaptation goes on, but the set-up is likely to hurt."""


def warn_small_batch(size: int) -> None:
    """A batch too small for batch statistics to mean much."""
    warnings.warn(
        f"a batch of {size} gives noisy batch statistics (fewer than {SMALL_BATCH} samples). Use larger "
        "batches, statistics='source', or a running mix such as statistics=0.1.",
        AdaptationWarning,
        stacklevel=4,
    )


def explain_single_value(error: ValueError, size: int) -> ValueError:
    """PyTorch's refusal to normalise one value a channel, in the user's terms."""
    return ValueError(
        f"batch statistics need more than one value a channel, but this batch of {size} gives one "
        f"({error}). Use larger batches, statistics='source', or a running mix such as statistics=0.1."
    )


@contextmanager
def no_autocast_cache() -> Iterator[None]:
    """Within autocast, keep no cast parameters: each step's would stay alive until autocast ends."""
    enabled = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(enabled)


def check_model(model: object) -> None:
    """Refuse what cannot be run functionally, and say what to pass instead."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"adapt wraps a torch.nn.Module; got {type(model).__name__}.")
    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        raise TypeError(
            f"adapt wraps the network itself; got {type(model).__name__}. Pass model.module, one "
            "adapter a process."
        )
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise TypeError(
            "adapt needs the Python modules of a network, which a scripted model no longer has. Pass the "
            "model from before torch.jit.script or torch.jit.trace."
        )
    if any(nn.parameter.is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers())):
        raise ValueError(
            f"{type(model).__name__} has lazy layers whose shapes are not known yet. Run it once on a batch, "
            "or load its weights, before adapt."
        )


def pick_logits(output: Any) -> Tensor:
    """The logits of what a model returned: itself, or its entry of that name."""
    if isinstance(output, Tensor):
        return output
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(named, Tensor):
        return named
    raise TypeError(
        f"the model returned {type(output).__name__}, and which part of it holds the logits is unclear. "
        "Pass logits=, for example logits=lambda output: output[0]."
    )


def check_logits(logits: object, size: int) -> None:
    """Scores of at least one class for every sample, as floats."""
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        came = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        raise TypeError(f"logits must be a float tensor; got {came}. Check logits=.")
    if logits.ndim < 2 or logits.shape[0] != size:
        raise ValueError(
            f"logits must have shape ({size}, ..., classes) for {size} samples; got {tuple(logits.shape)}. "
            "Check logits=; for classes on axis 1 pass logits=lambda output: output.movedim(1, -1)."
        )
    if not logits.requires_grad:
        raise ValueError(
            "the logits depend on none of the moving parameters, so there is no gradient to follow. Check "
            "that neither logits= nor the model detaches them, and which parameters= move."
        )
