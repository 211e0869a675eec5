"""Models wrapped by `torch.compile`: the modules behind them, and how to run those compiled."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.func import functional_call

_RUNNERS: WeakKeyDictionary[nn.Module, Callable[..., Any]] = WeakKeyDictionary()


def uncompiled(model: nn.Module) -> nn.Module:
    """The modules behind `torch.compile`."""
    return getattr(model, "_orig_mod", model)


def runner(model: nn.Module, *, compiled: bool = False) -> Callable[..., Any]:
    """`functional_call`, compiled with the model's own options if the model is compiled.

    `compiled` asks for `torch.compile` with its defaults on a model that is not. Adapters of one model
    share what was compiled.
    """
    is_compiled = hasattr(model, "_orig_mod")
    if not is_compiled and not compiled:
        return functional_call
    if model not in _RUNNERS:
        # The compiler counts its graphs by code object and gives up at a few: a copy for every model.
        call = FunctionType(_functional_call.__code__.replace(), globals())
        compiler = model.dynamo_ctx if is_compiled else torch.compile
        _RUNNERS[model] = compiler(call)  # type: ignore[operator]
    return _RUNNERS[model]


def _functional_call(module: nn.Module, tensors: Any, args: Any, kwargs: Any) -> Any:
    """`functional_call` in a function of ours: the compiler skips functions of torch itself."""
    return functional_call(module, tensors, args, kwargs)
