"""An objective turns logits into one value a sample, and says which samples count."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, final

import torch
from torch import Tensor

from fenchel.names import Registry


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """An unsupervised objective: (..., C) -> (...), unreduced, minimised by the adapter.

    It sees `logits / temperature` everywhere, in labels and thresholds too; predictions do not.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(
                f"{type(self).__name__} needs a finite temperature > 0; got {self.temperature!r}."
            )

    @final
    def __call__(self, logits: Tensor) -> Tensor:
        """The value of every sample, kept or not."""
        return self.value(self._cooled(logits))

    @final
    def keep(self, logits: Tensor) -> Tensor | None:
        """Which samples count, as a mask of the value's shape; None for all of them."""
        with torch.no_grad():
            return self.selected(self._cooled(logits))

    @abstractmethod
    def value(self, h: Tensor) -> Tensor:
        """The value of every sample at scores h that are already divided by the temperature."""

    def selected(self, h: Tensor) -> Tensor | None:
        """The mask behind `keep`, at scores already divided by the temperature."""
        return None

    def make_views(self, x: Tensor, generator: torch.Generator) -> Tensor | None:
        """Inputs (V, ...) to run in place of `x`, or None; with views, `value` sees (V, ..., C)."""
        return None

    def _cooled(self, logits: Tensor) -> Tensor:
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        return logits if self.temperature == 1 else logits / self.temperature


def mean_over_kept(values: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mean of the kept values (0 if none is kept), and whether any was kept; no synchronisation."""
    if keep is None:
        return values.mean(), torch.ones((), dtype=torch.bool, device=values.device)
    count = keep.sum()
    total = torch.where(keep, values, torch.zeros_like(values)).sum()
    return total / count.clamp_min(1), count > 0


OBJECTIVES: Registry[type[Objective]] = Registry("objective", group="fenchel.objectives")

O = TypeVar("O", bound=type[Objective])  # noqa: E741


def register(name: str) -> Callable[[O], O]:
    """Class decorator: list the objective under a name."""

    def decorate(cls: O) -> O:
        OBJECTIVES.add(name, cls)
        return cls

    return decorate
