"""Robust pseudo-labels: a hard label in a loss that forgives wrong ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Tensor

from fenchel.losses import GeneralizedCrossEntropy
from fenchel.objectives.base import Objective, register


@final
@register("robust")
@dataclass(frozen=True)
class RobustPseudoLabel(Objective):
    """Generalised cross-entropy (q) at the most likely class, for every sample.

    Reference: Rusak et al., "If your data distribution shifts, use self-learning", TMLR 2022.
    """

    q: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        GeneralizedCrossEntropy(q=self.q)  # refuses a q outside its range

    def value(self, h: Tensor) -> Tensor:
        loss = GeneralizedCrossEntropy(q=self.q)
        return loss(h, loss.labels.hard(h))
