"""The arguments of one call of a model, as the step hands them from pass to pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fenchel.adapters.group import Group, Shares


@dataclass(frozen=True)
class Inputs:
    """The arguments of one call of the model; the first tensor among them holds the samples."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shares: Shares | None = None
    """How the batch is divided, where this is one process's share of it."""

    def samples(self) -> Tensor:
        """The tensor whose first axis counts the samples."""
        for value in pytree.tree_leaves((self.args, self.kwargs)):
            if isinstance(value, Tensor) and value.ndim > 0:
                return value
        raise TypeError(
            "the adapted model needs a tensor of samples as one of its arguments; got "
            f"{[type(value).__name__ for value in (*self.args, *self.kwargs.values())]}."
        )

    def __len__(self) -> int:
        """The number of samples."""
        return self.samples().shape[0]

    @property
    def total(self) -> int:
        """The number of samples in the whole batch, whoever has them."""
        return len(self) if self.shares is None else self.shares.total

    def whole(self, rows: Tensor) -> Tensor:
        """The rows of the whole batch, from those of the samples that are here."""
        return rows if self.shares is None else self.shares.whole(rows)

    def part(self, rows: Tensor) -> Tensor:
        """The rows of the samples that are here, from those of the whole batch."""
        return rows if self.shares is None else self.shares.part(rows)

    def shared(
        self, group: Group | None, *, left_out: int = 0, call: tuple[Any, ...] = ()
    ) -> Inputs:
        """The same call as a share of a batch; without a sample it has a row of zeros to run on."""
        if group is None:
            return self
        samples = self.samples()
        same = (tuple(samples.shape[1:]), samples.dtype, *call)
        shares = Shares.agreed(group, len(samples), left_out, same)
        return replace(self if len(samples) else self._of_zeros(), shares=shares)

    def _of_zeros(self) -> Inputs:
        return self._mapped(
            lambda value: (
                value.new_zeros((1, *value.shape[1:])) if value.shape[:1] == (0,) else value
            )
        )

    def with_samples(self, samples: Tensor) -> Inputs:
        """The same call on other samples."""
        old = self.samples()
        return self._mapped(lambda value: samples if value is old else value)

    def changed(self, change: Callable[[Tensor], Tensor]) -> Inputs:
        """The same call on its samples as a function changes them, which is given the whole batch's."""
        return self.with_part_of(change(self.whole(self.samples())))

    def with_part_of(self, samples: Tensor) -> Inputs:
        """The same call on other samples, of which those of the whole batch are given."""
        shares = self.shares
        if shares is None:
            return self.with_samples(samples)
        return self.with_samples(
            self.part(samples) if shares.own else samples.new_zeros(self.samples().shape)
        )

    def unshared(self, samples: Tensor) -> Inputs:
        """The same call on samples that are all here, and in every process that shares the batch."""
        return replace(self.with_samples(samples), shares=None)

    def rows(self, chosen: Tensor) -> Inputs:
        """The same call on some of the samples: every tensor with one row per sample is cut alike."""
        size = len(self)
        return self._mapped(
            lambda value: value[chosen] if value.ndim > 0 and value.shape[0] == size else value
        )

    def finite_rows(self) -> Tensor | None:
        """Which samples are finite, or None if all of them are. Nothing else in a step waits for the device.

        Other arguments, such as masks, need not be finite.
        """
        samples = self.samples()
        if not samples.is_floating_point() or bool(samples.sum().isfinite()):
            return None
        fine = samples.reshape(len(samples), -1).isfinite().all(1)
        return None if bool(fine.all()) else fine

    def in_channels_last(self) -> Inputs:
        """The same call with images in channels-last memory, where convolutions are fastest."""
        return self.with_samples(self.samples().contiguous(memory_format=torch.channels_last))

    def copied(self) -> Inputs:
        """The same call on copies, for a model that writes into what it is given."""
        return self._mapped(Tensor.clone)

    def _mapped(self, function: Callable[[Tensor], Tensor]) -> Inputs:
        args, kwargs = pytree.tree_map_only(Tensor, function, (self.args, self.kwargs))
        return Inputs(args, kwargs, self.shares)
