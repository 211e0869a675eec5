"""BN-alpha: the source's statistics, mixed with a share of the batch's, and no update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from fenchel.adapters.method import Method
from fenchel.adapters.normalization import Statistics
from fenchel.facts import Cost, Published
from fenchel.names import register


@final
@register("bn-alpha")
@dataclass(frozen=True, kw_only=True)
class BatchAlpha(Method):
    """Statistics (1 - alpha) source + alpha batch in batch-normalisation layers, and no update.

    Nothing is kept of earlier batches, unlike the running statistics of `statistics=0.1`. With other
    methods the same mix is `statistics="mix:0.1"`.
    """

    shares_batches: ClassVar[bool] = True
    cost: ClassVar[Cost | None] = Cost(forward="1", backward="0", needs_batch=True)
    paper: ClassVar[str] = (
        'Schneider et al., "Improving robustness against common corruptions by covariate shift '
        'adaptation", NeurIPS 2020, arXiv 2006.16971'
    )
    published: ClassVar[Published] = {"cifar10": {"alpha": 0.1}, "imagenet": {"alpha": 0.1}}
    moves: ClassVar[bool] = False

    alpha: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise ValueError(
                f"bn-alpha needs 0 < alpha <= 1, the weight of the batch; got {self.alpha!r}. For the "
                "statistics of the source alone take method='source'."
            )

    @property
    def statistics(self) -> Statistics:
        """The mix, made anew for every batch."""
        return f"mix:{self.alpha}"
