"""An objective averaged over orders of the classes: what is left of it without preferences for some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fenchel.objectives.base import Objective


@final
@dataclass(frozen=True, kw_only=True)
class Symmetrised(Objective):
    """The mean of an objective over orders of the classes; each class takes each place equally often.

    There are too many orders for all of them: `rounds` random ones are taken, each with its rotations.
    That removes linear preferences for classes exactly, and leaves a symmetric objective as it is.

    >>> from fenchel.objectives import Entropy
    >>> h = torch.randn(5, 10, dtype=torch.float64)
    >>> torch.allclose(Symmetrised(objective=Entropy())(h), Entropy()(h))
    True
    """

    objective: Objective
    rounds: int = 8
    seed: int = 0

    def value(self, h: Tensor) -> Tensor:
        return self.objective(h[..., self._orders(h.shape[-1]).to(h.device)]).mean(-1)

    def _orders(self, classes: int) -> Tensor:
        """One order per row: each random one with all its rotations."""
        generator = torch.Generator().manual_seed(self.seed)
        drawn = (torch.randperm(classes, generator=generator) for _ in range(self.rounds))
        return torch.stack([order.roll(by) for order in drawn for by in range(classes)])
