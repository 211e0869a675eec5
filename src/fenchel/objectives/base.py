"""An objective turns logits into one value per sample, and says how much each sample counts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fenchel.facts import ONE_STEP, Cost
from fenchel.losses import Loss, OneOfMany
from fenchel.names import Registry
from fenchel.options import Configurable


@dataclass(frozen=True, kw_only=True)
class Objective(Configurable, ABC):
    """An unsupervised objective: (..., C) -> (...), unreduced, minimised by the adapter.

    It sees `logits / temperature` everywhere, in labels and thresholds too; predictions do not.
    A subclass writes `value`, and `weight` if samples count differently. Registered under a name, it
    is a method by itself: its fields are the method's options.

    >>> @dataclass(frozen=True)
    ... class Margin(Objective):
    ...     '''Push the two likeliest classes apart.'''
    ...     def value(self, h):
    ...         first, second = h.topk(2, dim=-1).values.unbind(-1)
    ...         return second - first
    >>> Margin(temperature=2.0)(torch.tensor([[3.0, 1.0, 0.0]]))
    tensor([-1.])
    """

    cost: ClassVar[Cost | None] = ONE_STEP

    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(
                f"{type(self).__name__} needs a finite temperature > 0; got {self.temperature!r}."
            )

    @final
    def __call__(self, logits: Tensor) -> Tensor:
        """The value of every sample, whatever its weight."""
        return self.value(self._cooled(logits))

    @final
    def weights(self, logits: Tensor) -> Tensor | None:
        """How much each sample counts, floats of the value's shape; None if all count alike.

        No gradient flows through them. A sample of weight 0 is left out.
        """
        with torch.no_grad():
            weights = self.weight(self._cooled(logits))
        return None if weights is None else _as_floats(weights, logits)

    @abstractmethod
    def value(self, h: Tensor) -> Tensor:
        """The value of every sample at scores h that are already divided by the temperature."""

    def weight(self, h: Tensor) -> Tensor | None:
        """How much each sample counts (see `weights`), at scores already divided by the temperature.

        A boolean mask of samples to keep is the weight 1 or 0.
        """
        return None

    def make_views(self, x: Tensor, generator: torch.Generator) -> Tensor | None:
        """Inputs (V, ...) to run in place of `x`, or None; with views, `value` sees (V, ..., C)."""
        return None

    def check(self) -> None:
        """Refuse what could not adapt anything; called once, before the first batch."""

    @property
    def is_bounded(self) -> bool:
        """Whether its value has a lower bound, so that following it ends somewhere."""
        return True

    def _cooled(self, logits: Tensor) -> Tensor:
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        return logits if self.temperature == 1 else logits / self.temperature


def _as_floats(weights: Tensor, logits: Tensor) -> Tensor:
    if weights.is_floating_point():
        return weights
    half = logits.dtype in (torch.float16, torch.bfloat16)
    return weights.to(torch.float32 if half else logits.dtype)


def weighted_mean(values: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mean of weight x value over the samples whose weight is above 0, and whether there are any.

    With weights of 0 and 1 it is the mean over the kept samples; the mean over none is 0. Nothing
    waits for the device.
    """
    if weights is None:
        return values.mean(), torch.ones((), dtype=torch.bool, device=values.device)
    counts = weights > 0
    count = counts.sum()
    total = torch.where(counts, weights * values, torch.zeros_like(values)).sum()
    return total / count.clamp_min(1), count > 0


def require_one_of_many(kind: type[Configurable], loss: Loss | None) -> None:
    """Refuse a loss whose labels are not one class out of C, for which an objective or method is made."""
    if loss is not None and not isinstance(loss.labels, OneOfMany):
        raise ValueError(
            f"{kind.__name__} is defined for one class out of C; {loss!r} has labels of another "
            "kind. Use method='conjugate', 'entropy', 'hard' or 'soft'."
        )


OBJECTIVES: Registry[type[Objective]] = Registry("objective", group="fenchel.objectives")
