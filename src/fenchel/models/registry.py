"""Models by name: our own, those of other packages, and timm's and torchvision's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from fenchel.models import external
from fenchel.names import Registry

MODELS: Registry[Callable[..., nn.Module]] = Registry("model", group="fenchel.models")
"""Factories by name. A package adds its own through the entry-point group `fenchel.models`."""


def factory(name: str) -> Callable[..., nn.Module]:
    """The function that builds the model `name`: registered, `timm/NAME` or `torchvision/NAME`."""
    return external.factory(name) if external.is_external(name) else MODELS[name]


def build(name: str, **arguments: Any) -> nn.Module:
    """A new model with random weights (from torch's global generator).

    >>> build("linear", features=3, classes=2)
    Linear(
      (fc): Linear(in_features=3, out_features=2, bias=True)
    )
    """
    make = factory(name)
    try:
        return make(**arguments)
    except TypeError as error:
        given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        raise ValueError(
            f"the model {name!r} cannot be built with ({given}): {error}. "
            f"See help(fenchel.models.factory({name!r}))."
        ) from error
