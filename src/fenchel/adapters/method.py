"""A method decides what happens to a batch: three functions of pure state, and its options as fields."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.passes import Passes
from fenchel.adapters.state import State, Tensors
from fenchel.names import Registry
from fenchel.objectives import OBJECTIVES, Objective
from fenchel.options import Configurable


@dataclass(frozen=True, kw_only=True)
class Method(Configurable, ABC):
    """What an adapter does with a batch. A subclass overrides what differs from the source model.

    Its fields are its options. It remembers nothing itself: what it needs to know of earlier batches is
    `state.memory`, a dictionary of tensors whose names and shapes stay the same. Memory is saved, reset,
    moved between devices and undone by the guard like the rest of the state. Tensors of a state are
    never changed in place.

    A field called `loss` is filled with the training loss.

    >>> from dataclasses import dataclass, replace
    >>> import fenchel, torch
    >>> @dataclass(frozen=True, kw_only=True)
    ... class PulledBack(fenchel.Method):
    ...     '''Entropy, and after every step a pull towards the source.'''
    ...     pull: float = 0.01
    ...     def update(self, passes, state, batch):
    ...         state = passes.descend(state, passes.loss(fenchel.Entropy(), batch))
    ...         pulled = {name: torch.lerp(value, passes.source[name], self.pull)
    ...                   for name, value in state.parameters.items()}
    ...         return replace(state, parameters=pulled)
    """

    moves: ClassVar[bool] = True
    """Whether parameters move; if none does, learning rate and optimiser do not matter."""
    statistics: ClassVar[Literal["source"] | None] = None
    """The statistics that the method needs; they override the setting `statistics`."""

    def start(self, passes: Passes, batch: Inputs) -> Tensors:
        """What it remembers before the first batch, which is given for its shapes."""
        return {}

    def update(self, passes: Passes, state: State, batch: Inputs) -> State:
        """The state after the batch: adapted parameters, and what to remember of it."""
        return state

    def output(self, passes: Passes, state: State, batch: Inputs) -> Any:
        """What the adapter returns for the batch."""
        return passes.output(state.parameters, batch)

    def check(self) -> None:
        """Refuse what could not adapt anything; called once, before the first batch."""

    @property
    def remembers(self) -> bool:
        """Whether it has a memory."""
        return type(self).start is not Method.start


METHODS: Registry[type[Method] | type[Objective]] = Registry(
    "method",
    group="fenchel.methods",
    also=OBJECTIVES,
    iterates=lambda kind: not kind.needs_options(),
    package="fenchel.methods",
)
"""All methods by name. An objective that is registered is a method by itself: descent on its value.

Those that need a file of the user's are found by name, but not iterated over: whoever runs every method
makes each from a loss alone.
"""
