"""Losses as people write them: one function or a pair of formulas, classes on the axis of their choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from fenchel.losses.derived.reading import LossFunction


@dataclass(frozen=True)
class Pair:
    """The loss given by its two formulas, with the classes on the axis `dim`."""

    f: Callable[[Tensor], Tensor]
    g: Callable[[Tensor], Tensor]
    dim: int = -1

    def __call__(self, h: Tensor, y: Tensor) -> Tensor:
        return self.f(h) - (y * self.g(h)).sum(self.dim)


@dataclass(frozen=True)
class OnAxis:
    """A function that wants the classes on the axis `dim`, called with samples and classes (N, C).

    It sees (C, N) for dim=0, (N, 1, .., C) for dim > 1, and (N, C, 1, ..) for dim < -1.
    """

    function: LossFunction
    dim: int

    def __call__(self, h: Tensor, y: Tensor) -> Tensor:
        placed = self._place(h)
        value = self.function(placed, self._place(y))
        if not isinstance(value, Tensor):
            return value  # the caller refuses it, in better words
        if value.shape == placed.shape:
            return (value.T if self.dim == 0 else value).reshape(h.shape)
        # The caller refuses a value of another size; a scalar is a reduced batch.
        return value.reshape(len(h)) if value.ndim and value.numel() == len(h) else value

    def _place(self, h: Tensor) -> Tensor:
        if self.dim == 0:
            return h.T
        before, after = max(self.dim - 1, 0), max(-self.dim - 1, 0)
        return h.reshape(len(h), *[1] * before, h.shape[-1], *[1] * after)


def on_axis(function: LossFunction, dim: int) -> LossFunction:
    """The function for samples and classes (N, C); itself, if that is how it takes them."""
    return function if dim in (-1, 1) else OnAxis(function, dim)
