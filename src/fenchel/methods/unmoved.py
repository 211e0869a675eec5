"""The two baselines in which no parameter moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from fenchel.adapters.method import Method
from fenchel.adapters.normalization import Statistics
from fenchel.facts import Cost
from fenchel.names import register


@final
@register("source")
@dataclass(frozen=True, kw_only=True)
class Source(Method):
    """The model as it is."""

    shares_batches: ClassVar[bool] = True
    cost: ClassVar[Cost | None] = Cost(forward="1", backward="0")
    moves: ClassVar[bool] = False

    @property
    def statistics(self) -> Statistics:
        """The source's own."""
        return "source"


@final
@register("bn")
@dataclass(frozen=True, kw_only=True)
class BatchStatistics(Method):
    """Statistics of the batch in batch-normalisation layers, and no update."""

    shares_batches: ClassVar[bool] = True
    cost: ClassVar[Cost | None] = Cost(forward="1", backward="0", needs_batch=True)
    moves: ClassVar[bool] = False
