"""What a model returns: where its logits are, how others take their place, how two outputs become one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

Where = str | int | Callable[[Any], Tensor]
"""The key, attribute or position of the logits in what a model returns, or a function that finds them."""

_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class Scores:
    """Finds the logits in a model's output, with the classes on the last axis.

    Attributes:
        where: see `Where`; by default the output itself, or its entry called `logits`.
        dim: the axis of the classes. An output of more than two axes needs it, unless `where` is a
            function, which returns the classes on the last axis.
    """

    where: Where | None = None
    dim: int | None = None

    def __post_init__(self) -> None:
        if not (self.where is None or isinstance(self.where, str | int) or callable(self.where)):
            raise TypeError(
                "logits is a key, a position or a function of the model's output; got "
                f"{type(self.where).__name__}. For example logits='scores', logits=0 or "
                "logits=lambda output: output[0]."
            )
        if self.dim is not None and (not isinstance(self.dim, int) or self.dim == 0):
            raise ValueError(
                f"dim is the axis of the classes, and axis 0 counts the samples; got dim={self.dim!r}. "
                "For outputs (samples, classes, height, width) pass dim=1."
            )

    def __call__(self, output: Any) -> Tensor:
        """The logits, (samples, ..., classes)."""
        logits = self._found(output)
        if not isinstance(logits, Tensor):
            raise TypeError(
                f"logits must be a float tensor; got {type(logits).__name__}. Check logits=."
            )
        if self.dim is not None:
            return _to_last(logits, self.dim)
        if logits.ndim > 2 and not callable(self.where):
            raise ValueError(
                "an output of more than two axes must say on which of them the classes are; got shape "
                f"{tuple(logits.shape)}. Pass dim=1 for (samples, classes, height, width), dim=-1 for "
                "classes on the last axis."
            )
        return logits

    def replaced(self, output: Any, logits: Tensor) -> Any:
        """The output with other logits, (samples, ..., classes), in the place of its own."""
        old = self._found(output)
        new = logits if self.dim is None else logits.movedim(-1, self.dim)
        found = []

        def put(tensor: Tensor) -> Tensor:
            found.append(tensor is old)
            return new if tensor is old else tensor

        changed = map_tensors(put, output)
        if not any(found):
            raise TypeError(
                "this method changes the logits, but those that logits= returns are no part of what the "
                "model returned. Pass the key or position of the logits, and dim= for their axis."
            )
        return changed

    def _found(self, output: Any) -> Any:
        if callable(self.where):
            return self.where(output)
        if self.where is not None:
            return _entry(output, self.where)
        if isinstance(output, Tensor):
            return output
        named = (
            output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
        )
        if isinstance(named, Tensor):
            return named
        raise TypeError(
            f"the model returned {type(output).__name__}, and which part of it holds the logits is "
            "unclear. Pass logits=, for example logits=lambda output: output[0], logits=0 or "
            "logits='scores'."
        )


def _entry(output: Any, where: str | int) -> Any:
    try:
        if isinstance(where, str) and not isinstance(output, Mapping):
            return getattr(output, where)
        return output[where]
    except (AttributeError, KeyError, IndexError, TypeError):
        known = list(output) if isinstance(output, Mapping) else f"a {type(output).__name__}"
        raise ValueError(
            f"logits={where!r} must name a part of the model's output, which is {known}. Check the "
            "key or position."
        ) from None


def _to_last(logits: Tensor, dim: int) -> Tensor:
    if not -logits.ndim <= dim < logits.ndim or dim % logits.ndim == 0:
        raise ValueError(
            f"dim={dim} must be an axis of the logits other than the first, which counts the samples; "
            f"they have shape {tuple(logits.shape)}."
        )
    return logits.movedim(dim, -1)


def check_logits(logits: Tensor, size: int) -> None:
    """Scores of at least one class for every sample, as floats."""
    if not logits.is_floating_point():
        raise TypeError(f"logits must be a float tensor; got {logits.dtype}. Check logits=.")
    if logits.ndim < 2 or logits.shape[0] != size:
        raise ValueError(
            f"logits must have shape ({size}, ..., classes) for {size} samples; got {tuple(logits.shape)}. "
            "Check logits=; for classes on axis 1 pass dim=1."
        )


def is_plain(output: Any) -> bool:
    """Whether all tensors of an output are within reach, so that it can be cut off its graph."""
    return all(isinstance(leaf, (Tensor, *_PLAIN)) for leaf in pytree.tree_leaves(output))


def map_tensors(function: Callable[..., Tensor], first: Any, *others: Any) -> Any:
    """The output `first` with its tensors mapped, together with those of outputs of the same form."""
    if isinstance(first, Tensor):
        return function(first, *others)
    if isinstance(first, _PLAIN):
        return first
    leaves, form = pytree.tree_flatten(first)
    if not (len(leaves) == 1 and leaves[0] is first):
        rest = [pytree.tree_leaves(other) for other in others]
        parts = zip(leaves, *rest, strict=True)
        return pytree.tree_unflatten([map_tensors(function, *each) for each in parts], form)
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        changed = {
            field.name: map_tensors(
                function, *(getattr(each, field.name) for each in (first, *others))
            )
            for field in dataclasses.fields(first)
            if field.init
        }
        return dataclasses.replace(first, **changed)
    raise TypeError(
        f"the model returned {type(first).__name__}, whose tensors cannot be reached one by one. Let it "
        "return tensors, tuples, dictionaries or dataclasses."
    )


def joined(chosen: Tensor, these: Any, those: Any) -> Any:
    """One output for a batch, from that of the samples `chosen` and that of the others."""
    first, second = int(chosen.sum()), int((~chosen).sum())

    def join(one: Tensor, other: Tensor) -> Tensor:
        if one.ndim == 0 or (one.shape[0], other.shape[0]) != (first, second):
            return one  # something of the batch as a whole
        whole = one.new_empty((len(chosen), *one.shape[1:]))
        whole[chosen], whole[~chosen] = one, other.to(one.dtype)
        return whole

    with torch.no_grad():
        return map_tensors(join, these, those)
