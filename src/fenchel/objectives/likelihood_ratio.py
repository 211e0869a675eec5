"""The soft likelihood ratio, whose gradient does not fade for sure predictions as the entropy's does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

from torch import Tensor

from fenchel.losses import Loss
from fenchel.names import register
from fenchel.objectives.base import Objective, require_one_of_many

if TYPE_CHECKING:
    from typing_extensions import Self


@final
@register("likelihood-ratio")
@dataclass(frozen=True)
class LikelihoodRatio(Objective):
    """The soft likelihood ratio: -sum_k p_k log(p_k / (1 - p_k) + epsilon), p = min(softmax(h), clip)."""

    paper: ClassVar[str] = (
        'Mummadi et al., "Test-Time Adaptation to Distribution Shift by Confidence Maximization and Input '
        'Transformation", 2021, arXiv 2106.14999; in the form of ROID, arXiv 2306.00650'
    )

    clip: float = 0.99
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 < self.clip < 1 and self.epsilon > 0):
            raise ValueError(
                f"LikelihoodRatio needs 0 < clip < 1 and epsilon > 0; got clip={self.clip!r}, "
                f"epsilon={self.epsilon!r}."
            )

    def value(self, h: Tensor) -> Tensor:
        p = h.softmax(-1).clamp_max(self.clip)
        return -(p * (p / (1 - p) + self.epsilon).log()).sum(-1)

    @classmethod
    def made_for(cls, loss: Loss | None, **options: Any) -> Self:
        require_one_of_many(cls, loss)
        return super().made_for(loss, **options)
