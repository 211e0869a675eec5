"""RDumb: ETA that forgets everything at regular intervals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

from torch import Tensor

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.passes import Passes
from fenchel.adapters.state import RESTARTS, State, Tensors, chosen
from fenchel.facts import Cost, Published
from fenchel.methods.gated import ReliableAndNew
from fenchel.methods.restarting import counter, restarted_where
from fenchel.names import register


@final
@register("rdumb")
@dataclass(frozen=True, kw_only=True)
class RDumb(ReliableAndNew):
    """ETA, and a full reset to the source after every so many updates."""

    cost: ClassVar[Cost | None] = Cost(forward="1", backward="1", memory="mean prediction, a count")
    paper: ClassVar[str] = (
        'Press et al., "RDumb: A simple approach that questions our progress in continual test-time '
        'adaptation", NeurIPS 2023, arXiv 2306.05401'
    )
    published: ClassVar[Published] = {
        "imagenet": {
            "similarity": 0.05,
            "optimizer": "sgd",
            "learning_rate": 2.5e-4,
            "predict": "before",
        },
    }

    every: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.every, bool) or not isinstance(self.every, int) or self.every < 1:
            raise ValueError(
                f"RDumb resets after a whole number of updates, at least 1; got every={self.every!r}."
            )

    def first_memory(self, logits: Tensor) -> Tensors:
        counts = {"updates": counter(logits), "updated_at": counter(logits, -1)}
        return {**super().first_memory(logits), **counts, RESTARTS: counter(logits)}

    def update(self, passes: Passes, state: State, batch: Inputs) -> State:
        forgotten = {name: value.new_zeros(value.shape) for name, value in state.memory.items()}
        forgotten[RESTARTS] = state.memory[RESTARTS] + 1
        begun = restarted_where(self._due(state), passes, state, forgotten)
        after = super().update(passes, begun, batch)
        # The prediction before the update is that of the parameters it began from.
        passes.remember(state.parameters, passes.remembered(begun.parameters))
        count = after.memory["updates"] + 1
        now = counter(count, state.step)
        return replace(after, memory={**after.memory, "updates": count, "updated_at": now})

    def output(self, passes: Passes, state: State, batch: Inputs) -> Any:
        """The prediction; that of the source where a reset is due and has not come to pass yet."""
        if (known := passes.remembered(state.parameters)) is not None:
            return known
        theta = chosen(self._due(state), passes.source, state.parameters)
        return passes.output(theta, batch)

    def _due(self, state: State) -> Tensor:
        """Whether enough updates were made, the last of them on an earlier batch than this one."""
        earlier = state.memory["updated_at"] != state.step
        return (state.memory["updates"] >= self.every) & earlier
