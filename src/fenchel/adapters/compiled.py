"""Models wrapped by `torch.compile`: the modules behind them, and how to run those compiled."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from torch.func import functional_call

_RUNNERS: WeakKeyDictionary[nn.Module, Callable[..., Any]] = WeakKeyDictionary()


def uncompiled(model: nn.Module) -> nn.Module:
    """The modules behind `torch.compile`."""
    return getattr(model, "_orig_mod", model)


def runner(model: nn.Module) -> Callable[..., Any]:
    """`functional_call`, compiled with the model's own options if the model is compiled.

    Adapters of one compiled model share what was compiled.
    """
    if not hasattr(model, "_orig_mod"):
        return functional_call
    if model not in _RUNNERS:
        # The compiler counts its graphs by code object and gives up at a few: a copy for every model.
        call = FunctionType(_functional_call.__code__.replace(), globals())
        _RUNNERS[model] = model.dynamo_ctx(call)  # type: ignore[operator]
    return _RUNNERS[model]


def _functional_call(module: nn.Module, tensors: Any, args: Any, kwargs: Any) -> Any:
    """A frame of our own: the compiler passes over those of torch itself."""
    return functional_call(module, tensors, args, kwargs)
