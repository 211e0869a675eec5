"""Forward-mode differentiation that skips convolutions with zero tangents."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

from fenchel.adapters.state import Tensors

_CONVOLUTIONS = (torch.conv1d, torch.conv2d, torch.conv3d)


def duals(values: Tensors, tangents: Tensors) -> Tensors:
    """Values that carry tangents, by name; inside `forward_ad.dual_level()`."""
    with warnings.catch_warnings():
        # The first dual tensor of a process makes torch load rules through its own deprecated jit.
        warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
        return {
            name: forward_ad.make_dual(value, tangents[name].to(value.dtype))  # type: ignore[no-untyped-call]
            for name, value in values.items()
        }


class FixedConvolutions(TorchFunctionMode):
    """Within it, a convolution whose weights carry no tangent costs two convolutions and not three.

    Torch's own rule fills the missing tangent of the weights with zeros and convolves with them.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func in _CONVOLUTIONS and not kwargs and not any(map(_has_tangent, args[1:3])):
            inputs, weight, bias, *geometry = args
            primal, tangent = forward_ad.unpack_dual(inputs)  # type: ignore[no-untyped-call]
            if tangent is not None:
                value = func(primal, weight, bias, *geometry)
                moved = func(tangent, weight, None, *geometry)
                return forward_ad.make_dual(value, moved)  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


def _has_tangent(value: Tensor | None) -> bool:
    return value is not None and forward_ad.unpack_dual(value).tangent is not None  # type: ignore[no-untyped-call]
