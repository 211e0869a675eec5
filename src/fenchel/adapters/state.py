"""What an adapter remembers between batches: a few tensors, and nothing inside the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

Tensors = dict[str, Tensor]

RESTARTS = "restarts"
"""The entry of a method's memory in which it counts how often it went back to the source by itself."""

_ADDED_LATER = ("left_out",)
"""Entries that states saved by the first versions do not have."""


@dataclass(frozen=True)
class State:
    """The whole memory of an adapter. Steps make new states; tensors are never changed in place.

    The counts live on the device, so that counting costs no synchronisation; `batches`, `samples` and
    `resets` are known to the host anyway.
    """

    parameters: Tensors
    statistics: Tensors
    moments: Tensors
    counts: Tensors
    memory: Tensors = field(default_factory=dict)
    """What the method remembers: empty before the first batch, and for most methods ever after."""
    seen: Tensors = field(default_factory=dict)
    """The statistics of the batches since the last reset, and the number of their `samples`."""
    step: int = 0
    """Batches since the last reset: seeds whatever is drawn at random."""
    batches: int = 0
    samples: int = 0
    left_out: int = 0
    """Samples that were not finite; they entered no statistics, loss or memory."""
    resets: int = 0

    def map(self, function: Callable[[Tensor], Tensor]) -> State:
        """The same state with every tensor passed through `function` (to move or to copy it)."""

        def each(tensors: Tensors) -> Tensors:
            return {name: function(tensor) for name, tensor in tensors.items()}

        return replace(
            self,
            parameters=each(self.parameters),
            statistics=each(self.statistics),
            moments=each(self.moments),
            counts=each(self.counts),
            memory=each(self.memory),
            seen=each(self.seen),
        )

    def flattened(self) -> Tensors:
        """Every entry under one name, as tensors: what is saved."""
        flat: Tensors = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, dict):
                flat |= {f"{each.name}.{name}": tensor for name, tensor in value.items()}
            else:
                flat[each.name] = torch.tensor(value)
        return flat

    def filled(self, flat: Mapping[str, Tensor], *, remembers: bool = False) -> State:
        """A state of this one's structure with the entries of `flat`, checked before anything changes.

        `remembers`: whether there may be a memory. Its entries are known after the first batch only.
        """

        def optional(name: str) -> bool:
            memory = remembers and name.startswith("memory.")
            added = name in _ADDED_LATER or name.startswith("seen.")
            return memory or added or self._comes_and_goes(name)

        own = self.flattened()
        missing = [name for name in own if name not in flat and not optional(name)]
        unexpected = [name for name in flat if name not in own and not optional(name)]
        if missing or unexpected:
            raise ValueError(
                "this saved state belongs to another model or another adapter: "
                f"missing {missing[:3] or 'nothing'}, unexpected {unexpected[:3] or 'nothing'}. "
                "Build the adapter with the arguments it was saved with."
            )
        for name, tensor in flat.items():
            if not isinstance(tensor, Tensor):
                raise TypeError(
                    f"a saved state holds tensors alone; {name!r} is a {type(tensor).__name__}. Pass what "
                    "adapter.state_dict() returned."
                )
            if name in own and tensor.shape != own[name].shape:
                raise ValueError(
                    f"{name!r} has shape {tuple(own[name].shape)} here and {tuple(tensor.shape)} in the "
                    "saved state. Build the adapter around the same architecture."
                )
        groups: dict[str, Tensors] = {}
        host: dict[str, int] = {}
        device = next(iter(self.counts.values())).device
        # In this state's own order, whatever a file made of it: methods draw numbers entry by entry.
        for name in dict.fromkeys([*(name for name in own if name in flat), *flat]):
            tensor = flat[name]
            group, dot, rest = name.partition(".")
            if dot:
                like = own.get(name)
                groups.setdefault(group, {})[rest] = (
                    tensor.detach().to(device).clone() if like is None else _like(tensor, like)
                )
            else:
                host[group] = int(tensor)
        empty: Tensors = {}
        return State(
            parameters=groups.get("parameters", empty),
            statistics=groups.get("statistics", empty),
            moments=groups.get("moments", empty),
            counts=groups["counts"],
            memory=groups.get("memory", empty),
            seen=groups.get("seen", empty),
            **host,
        )

    def _comes_and_goes(self, name: str) -> bool:
        """Whether an entry is a moment of a `torch.optim` optimiser, which has none at first."""
        group, _, rest = name.partition(".")
        parameter, slash, _ = rest.partition("/")
        return group == "moments" and slash == "/" and parameter in self.parameters


def fresh_counts(device: torch.device) -> Tensors:
    """A zero for everything that is counted on the device."""
    names = ("updates", "non_finite", "none_kept")
    return {name: torch.zeros((), dtype=torch.int64, device=device) for name in names}


def all_finite(tensors: Iterable[Tensor]) -> Tensor:
    """Whether all numbers of some tensors are finite, as a tensor."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors]).isfinite().all()


def chosen(condition: Tensor, new: Tensors, old: Tensors) -> Tensors:
    """`new` where the condition holds, else `old`; what did not exist before is zero.

    Some optimisers of `torch.optim` count their steps on the host, hence the condition's move.
    """
    return {
        name: torch.where(condition.to(value.device), value, old.get(name, torch.zeros_like(value)))
        for name, value in new.items()
    }


def same(one: Tensors, other: Tensors) -> bool:
    """Whether two dictionaries hold the very same tensors; those of a state are never changed in place."""
    return one.keys() == other.keys() and all(one[name] is other[name] for name in one)


def _like(tensor: Tensor, like: Tensor) -> Tensor:
    return tensor.detach().to(device=like.device, dtype=like.dtype).clone()
