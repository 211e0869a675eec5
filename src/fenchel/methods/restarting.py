"""Going back to the source within a stream, as methods do that notice or expect a collapse."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fenchel.adapters.passes import Passes
from fenchel.adapters.state import State, Tensors, chosen


def restarted_where(condition: Tensor, passes: Passes, state: State, memory: Tensors) -> State:
    """Where the condition holds, the state before the first batch, with `memory` as the method's own.

    Parameters, moments of the optimiser and running statistics are those of the source again. Counts go on.
    """
    fresh = passes.optimizer.start(passes.source)
    if fresh.keys() == state.moments.keys():
        moments = chosen(condition, fresh, state.moments)
    else:  # an optimiser of torch.optim, which has no moments at first: the host must know which they are
        moments = fresh if bool(condition) else state.moments
    return replace(
        state,
        parameters=chosen(condition, passes.source, state.parameters),
        moments=moments,
        statistics=chosen(condition, _source_statistics(passes, state), state.statistics),
        memory=chosen(condition, memory, state.memory),
    )


def _source_statistics(passes: Passes, state: State) -> Tensors:
    source = passes.source_statistics
    return {name: source[name] for name in state.statistics}


def counter(like: Tensor, value: int = 0) -> Tensor:
    """A whole number on the device of a tensor, for a method's memory."""
    return torch.full((), value, dtype=torch.int64, device=like.device)
