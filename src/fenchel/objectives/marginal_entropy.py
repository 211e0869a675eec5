"""MEMO in its batch version: the entropy of the prediction averaged over augmented views."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, final

import torch
from torch import Tensor

from fenchel.facts import Cost
from fenchel.losses import Loss
from fenchel.names import register
from fenchel.objectives.augmix import augmix
from fenchel.objectives.base import Objective, require_one_of_many
from fenchel.objectives.pixels import KnowsPixels

if TYPE_CHECKING:
    from typing_extensions import Self


@final
@register("memo")
@dataclass(frozen=True)
class MarginalEntropy(Objective, KnowsPixels):
    """The entropy of the mean prediction over AugMix views (MEMO): H(mean_v softmax(h_v)).

    Each view has a forward pass of its own; the clean input serves the prediction only. AugMix works on
    pixel values, so the objective must know where they lie: `input_range=(low, high)` for images such
    as (0, 1), or the `mean` and `std` by which images in [0, 1] were normalised before the model.

    >>> objective = MarginalEntropy(views=2, input_range=(0, 1))
    >>> objective(torch.tensor([[[2.0, 0.0]], [[0.0, 2.0]]]))  # two views of one image that disagree
    tensor([0.6931])
    """

    cost: ClassVar[Cost | None] = Cost(forward="1 + views", backward="views")
    paper: ClassVar[str] = (
        'Zhang et al., "MEMO: Test Time Robustness via Adaptation and Augmentation", NeurIPS 2022, '
        "arXiv 2110.09506"
    )

    views: int = 3

    def __post_init__(self) -> None:
        Objective.__post_init__(self)
        KnowsPixels.__post_init__(self)
        if self.views < 1:
            raise ValueError(f"MarginalEntropy needs at least one view; got views={self.views!r}.")

    def value(self, h: Tensor) -> Tensor:
        """`h` holds the views' scores, (V, ..., C), V = 1 included."""
        if h.ndim < 3:
            raise ValueError(
                f"MarginalEntropy needs the scores of its views, (views, samples, classes); got shape "
                f"{tuple(h.shape)}. The adapter makes them: pass the objective to fenchel.adapt."
            )
        log_mean = h.log_softmax(-1).logsumexp(0) - math.log(h.shape[0])
        return -(log_mean.exp() * log_mean).sum(-1)

    def make_views(self, x: Tensor, generator: torch.Generator) -> Tensor:
        views = [self.changed(x, partial(augmix, generator=generator)) for _ in range(self.views)]
        return torch.stack(views)

    @classmethod
    def made_for(cls, loss: Loss | None, **options: Any) -> Self:
        require_one_of_many(cls, loss)
        return super().made_for(loss, **options)

    def check(self) -> None:
        """Refuse images whose pixel range is not known: making views needs it."""
        self.require_pixels()
