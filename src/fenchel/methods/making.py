"""How a method is made from its name or class, its options and the training loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fenchel.adapters.method import METHODS, Method
from fenchel.losses import Loss
from fenchel.methods.descent import Descent
from fenchel.objectives import Objective


def made_method(
    kind: str | type[Method] | type[Objective],
    loss: Loss | None,
    options: Mapping[str, Any],
    *,
    title: str | None = None,
    temperature: float | None = None,
    input_range: tuple[float, float] | None = None,
) -> Method:
    """The method of a kind, or of that name, with its options, for a model trained with `loss`.

    title: what errors call it.
    temperature: the temperature of its objective; None for the objective's own.
    input_range: the range of the model's pixels, if it is known. It is the default of a method's
        option of that name.
    """
    if isinstance(kind, str):
        title, kind = title or kind, METHODS[kind]
    if (
        input_range is not None
        and "input_range" in kind.options()
        and not options.keys() & {"input_range", "mean"}
    ):
        options = {**options, "input_range": input_range}
    made = kind.made_for(loss, title=title, temperature=temperature, **options)
    return as_method(made)


def moves_parameters(name: str) -> bool:
    """Whether the method `name` moves parameters, so that there is a learning rate to choose."""
    kind = METHODS[name]
    return not issubclass(kind, Method) or kind.moves


def as_method(made: Method | Objective) -> Method:
    """An objective by itself is descent on its value."""
    return Descent(objective=made) if isinstance(made, Objective) else made
