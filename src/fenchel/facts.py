"""What is known of a method besides its formula: what it costs, what it needs, who published it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Published = Mapping[str, Mapping[str, Any]]
"""Settings by data set, as the authors published them: options of the method and of `adapt`."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a method does and keeps per batch, as its paper counts it.

    Passes are those of a prediction before the update, as most papers make it; `predict="after"` adds one
    forward pass. A pass whose gradient flows back through two views counts as two.

    Attributes:
        forward: forward passes per batch, such as "1" or "1 + 2/64".
        backward: backward passes per batch.
        memory: what it remembers from batch to batch.
        needs_batch: whether it compares the samples of a batch, so that one sample by itself tells it less.
        needs_source_data: whether it must see images of the source before the stream.
    """

    forward: str
    backward: str
    memory: str = "nothing"
    needs_batch: bool = False
    needs_source_data: bool = False


ONE_STEP = Cost(forward="1", backward="1")
"""One pass and its gradient, as TENT."""
