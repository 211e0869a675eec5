"""Checks that keep adaptation from failing obscurely or making things silently worse."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

SMALL_BATCH = 16


class AdaptationWarning(UserWarning):
    """Adaptation goes on, but the set-up is likely to hurt.

    >>> import fenchel
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always", AdaptationWarning)
    ...     _ = fenchel.adapt(network, trained_with="cross-entropy", method="entropy")(torch.randn(4, 4))
    >>> print(said[0].message)
    a batch of 4 gives noisy batch statistics (fewer than 16 samples). Use larger batches, ...
    """


class UnboundedObjectiveWarning(AdaptationWarning):
    """The objective has no minimum, so that nothing ends adaptation but a small rate or few batches."""


@contextmanager
def without_minimum_is_meant() -> Iterator[None]:
    """In the block, objectives without a minimum raise no warning: experiments use them on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnboundedObjectiveWarning)
        yield


def warn_small_batch(size: int) -> None:
    """A batch too small for batch statistics to mean much."""
    warnings.warn(
        f"a batch of {size} gives noisy batch statistics (fewer than {SMALL_BATCH} samples). Use larger "
        "batches, statistics='auto', or a running mix such as statistics=0.1. Those of the source do not "
        "help: an update under them does more harm than none.",
        AdaptationWarning,
        stacklevel=4,
    )


def explain_single_value(error: ValueError, size: int) -> ValueError:
    """PyTorch's refusal to normalise one value per channel, in the user's terms."""
    return ValueError(
        f"batch statistics need more than one value per channel, but this batch of {size} gives one "
        f"({error}). Use larger batches, statistics='auto', or a running mix such as statistics=0.1."
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
            "adapter per process."
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
