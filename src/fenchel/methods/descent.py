"""Follow an objective: conjugate, hard, soft and robust labels, entropy, MEMO, and those of one's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.method import Method
from fenchel.adapters.passes import Passes
from fenchel.adapters.state import State
from fenchel.facts import ONE_STEP, Cost
from fenchel.objectives import Objective


@final
@dataclass(frozen=True, kw_only=True)
class Descent(Method):
    """One step of the optimiser per batch along the gradient of an objective."""

    shares_batches: ClassVar[bool] = True
    cost: ClassVar[Cost | None] = ONE_STEP

    objective: Objective

    def update(self, passes: Passes, state: State, batch: Inputs) -> State:
        return passes.descend(state, passes.loss(self.objective, batch))

    def check(self) -> None:
        self.objective.check()
