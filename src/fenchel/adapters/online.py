"""The loop that runs an adapter over a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from torch import Tensor

from fenchel.adapters.adapter import Adapter
from fenchel.adapters.session import Session

Item = TypeVar("Item")


def online(adapter: Adapter | Session, stream: Iterable[Item]) -> Iterator[tuple[Item, Any]]:
    """Adapt on every batch of a stream, in order, and yield (batch, output) as each is predicted.

    A batch is a tensor; or a tuple or list whose first entry is one, such as (images, labels) of a
    DataLoader; or an object with `inputs`, as those of `fenchel.data.Stream`, whose `reset` tells where
    the adapter must forget. Nothing but the inputs reaches the adapter.

    >>> import fenchel, torch
    >>> network = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))
    >>> adapted = fenchel.adapt(network, trained_with="cross-entropy")
    >>> [output.shape for _, output in online(adapted, torch.rand(2, 20, 4))]
    [torch.Size([20, 3]), torch.Size([20, 3])]
    """
    for number, batch in enumerate(stream):
        if number > 0 and getattr(batch, "reset", False):
            adapter.reset()
        yield batch, adapter(_inputs_of(batch))


def _inputs_of(batch: Any) -> Any:
    if isinstance(batch, Tensor):
        return batch
    if isinstance(batch, tuple | list) and batch:
        return batch[0]
    return getattr(batch, "inputs", batch)
