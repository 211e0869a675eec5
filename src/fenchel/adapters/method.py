"""A method decides what happens to a batch: three functions of pure state, and its options as fields."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.normalization import Statistics
from fenchel.adapters.passes import Passes
from fenchel.adapters.state import State, Tensors
from fenchel.losses import Loss
from fenchel.names import Registry
from fenchel.objectives import OBJECTIVES, Objective
from fenchel.options import Configurable

if TYPE_CHECKING:
    from typing_extensions import Self

OpenPasses = Callable[[Inputs], AbstractContextManager[Passes]]
"""With the passes that a batch may go through."""


@dataclass(frozen=True, kw_only=True)
class Method(Configurable, ABC):
    """What an adapter does with a batch. A subclass overrides what differs from the source model.

    Its fields are its options. It remembers nothing itself: what it needs to know of earlier batches is
    `state.memory`, a dictionary of tensors whose names and shapes stay the same. Memory is saved, reset,
    moved between devices and undone by the guard like the rest of the state. Tensors of a state are
    never changed in place.

    A field called `loss` is filled with the training loss. What it costs, where it was published and the
    settings it was made for are facts of its class: `cost`, `paper`, `defaults`, `published`.

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

    shares_batches: ClassVar[bool] = False
    """Whether processes may share its batches (`group=` of `adapt`). It then sees a batch by `passes.logits`,
    `features` and `logits_in`, which are those of the whole batch; `batch.samples()` are one process's own.
    `batch.changed` makes views of all."""

    @property
    def statistics(self) -> Statistics | None:
        """The statistics that the method needs; they override the setting `statistics`.

        What it merely prefers belongs into `defaults`.
        """
        return None

    @property
    def has_minimum(self) -> bool:
        """Whether what it minimises has a lower bound, so that following it ends somewhere."""
        objective = getattr(self, "objective", None)
        return not isinstance(objective, Objective) or objective.is_bounded

    def start(self, passes: Passes, batch: Inputs) -> Tensors:
        """What it remembers before the first batch, which is given for its shapes."""
        return {}

    def update(self, passes: Passes, state: State, batch: Inputs) -> State:
        """The state after the batch: adapted parameters, and what to remember of it."""
        return state

    def output(self, passes: Passes, state: State, batch: Inputs) -> Any:
        """What the adapter returns for the batch."""
        return passes.output(self.predictor(state), batch)

    def predictor(self, state: State) -> Tensors:
        """The tensors with which the model predicts: what moved, or those of a teacher."""
        return state.parameters

    def check(self) -> None:
        """Refuse what could not adapt anything; called once, before the first batch."""

    def trained_with(self, loss: Loss | None) -> Self:
        """The method for a model trained with `loss` (None: not known)."""
        return self

    def prepared(self, on_source: OpenPasses, images: Tensor | None) -> Self:
        """The method with what it learns from images of the source; None if there are none.

        Called once, before the first batch, if `cost` says that it needs source data. `on_source` opens
        passes over a batch of them, at the source model's parameters.
        """
        return self

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
