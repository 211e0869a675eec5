"""The methods, one file per method, and how one is made from a name.

A method of your own is a subclass of `fenchel.Method` under `@fenchel.register("name")`, here, in a plugin
file or behind an entry point of the group `fenchel.methods`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fenchel.adapters.method import METHODS, Method
from fenchel.losses import Loss
from fenchel.methods.descent import Descent
from fenchel.names import import_submodules
from fenchel.objectives import Objective

import_submodules(__name__, __path__)

STANDARD_METHODS = ("source", "bn", "entropy", "hard", "soft", "robust", "memo", "conjugate")
"""The methods that every comparison here has, in the order in which tables show them."""

__all__ = ["STANDARD_METHODS", "Descent", "as_method", "made_method", "moves_parameters"]


def made_method(
    name: str,
    loss: Loss | None,
    options: Mapping[str, Any],
    *,
    temperature: float | None = None,
    input_range: tuple[float, float] | None = None,
) -> Method:
    """The method `name` with its options, for a model trained with `loss`.

    temperature: the temperature of its objective; None for the objective's own.
    input_range: the range of the model's pixels, if it is known. It is the default of a method's
        option of that name.
    """
    kind = METHODS[name]
    if (
        input_range is not None
        and "input_range" in kind.options()
        and not options.keys() & {"input_range", "mean"}
    ):
        options = {**options, "input_range": input_range}
    made = kind.made_for(loss, title=name, temperature=temperature, **options)
    return as_method(made)


def moves_parameters(name: str) -> bool:
    """Whether the method `name` moves parameters, so that there is a learning rate to choose."""
    kind = METHODS[name]
    return not issubclass(kind, Method) or kind.moves


def as_method(made: Method | Objective) -> Method:
    """An objective by itself is descent on its value."""
    return Descent(objective=made) if isinstance(made, Objective) else made
