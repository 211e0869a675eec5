"""The arguments of one call of a model, as the step hands them from pass to pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class Inputs:
    """The arguments of one call of the model; the first tensor among them holds the samples."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

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

    def with_samples(self, samples: Tensor) -> Inputs:
        """The same call on other samples."""
        old = self.samples()
        return self._mapped(lambda value: samples if value is old else value)

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
        return Inputs(*pytree.tree_map_only(Tensor, function, (self.args, self.kwargs)))
