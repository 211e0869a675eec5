"""Robust pseudo-labels: a hard label in a loss that forgives wrong ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

from torch import Tensor

from fenchel.losses import GeneralizedCrossEntropy, Loss
from fenchel.names import register
from fenchel.objectives.base import Objective, require_one_of_many

if TYPE_CHECKING:
    from typing_extensions import Self


@final
@register("robust")
@dataclass(frozen=True)
class RobustPseudoLabel(Objective):
    """Generalised cross-entropy (q) at the most likely class, for every sample.

    >>> import torch
    >>> RobustPseudoLabel(q=0.8)(torch.tensor([[2.0, 0.0, 0.0]]))
    tensor([0.2180])
    """

    paper: ClassVar[str] = (
        'Rusak et al., "If your data distribution shifts, use self-learning", TMLR 2022, arXiv 2104.12928'
    )

    q: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        GeneralizedCrossEntropy(q=self.q)  # refuses a q outside its range

    def value(self, h: Tensor) -> Tensor:
        loss = GeneralizedCrossEntropy(q=self.q)
        return loss(h, loss.labels.hard(h))

    @classmethod
    def made_for(cls, loss: Loss | None, **options: Any) -> Self:
        require_one_of_many(cls, loss)
        return super().made_for(loss, **options)
