"""A training loss is its two formulas, f and g; label and test-time objective follow from them.

L(h, y)   = f(h) - <y, g(h)>        (terms in y alone may be added: they do not train)
label     y~ solves  Dg(h)^T y~ = grad f(h)
objective conj(h) = f(h) - <y~(h), g(h)>
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fenchel.losses.labels import LabelSpace, OneOfMany
from fenchel.names import Registry, build, format_spec


@dataclass(frozen=True, kw_only=True)
class Loss(ABC):
    """A training loss in expanded conjugate form, unreduced, classes on the last axis.

    A subclass writes `f` and `g`; that is enough. Where closed forms exist it overrides `_label`
    and `_conjugate` as well, which the tests then hold against the derived ones.

    >>> @dataclass(frozen=True, kw_only=True)
    ... class Doubled(Loss):
    ...     '''Twice the cross-entropy.'''
    ...     def f(self, h):
    ...         return 2 * h.logsumexp(-1)
    ...     def g(self, h):
    ...         return 2 * h
    >>> Doubled().label(torch.tensor([[2.0, 0.0, 0.0]]))
    tensor([[0.7870, 0.1065, 0.1065]])
    """

    name: ClassVar[str]
    labels: ClassVar[LabelSpace] = OneOfMany()
    objective_is_bounded: ClassVar[bool] = True
    """Whether the test-time objective has a lower bound, so that following it ends somewhere."""

    @abstractmethod
    def f(self, h: Tensor) -> Tensor:
        """The part of the loss that does not depend on the label: (..., C) -> (...)."""

    @abstractmethod
    def g(self, h: Tensor) -> Tensor:
        """What the label is paired with: (..., C) -> (..., C)."""

    def label_term(self, y: Tensor) -> Tensor | float:
        """A term in y alone, part of the loss's value but not of the test-time objective."""
        return 0.0

    @final
    def __call__(self, h: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
        """The loss of every sample. `y` holds class indices (...) or labels (..., C)."""
        with _plain_autograd(h):
            soft = y.ndim == h.ndim
            h = _on_last_axis(h, dim)
            return self._at(h, self._written_out(y.movedim(dim, -1) if soft else y, h))

    @final
    def label(self, h: Tensor, *, dim: int = -1) -> Tensor:
        """The conjugate pseudo-label y~, of the shape of `h`. Differentiable: never detach it."""
        with _plain_autograd(h):
            return self._label(_on_last_axis(h, dim)).movedim(-1, dim)

    @final
    def conjugate(self, h: Tensor, *, dim: int = -1) -> Tensor:
        """The test-time objective of every sample: the training loss at its conjugate label."""
        with _plain_autograd(h):
            return self._conjugate(_on_last_axis(h, dim))

    @property
    def spec(self) -> str:
        """The loss as a string, for command lines and records: `poly:epsilon=6.0`."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return format_spec(self.name, fields)

    def _at(self, h: Tensor, y: Tensor) -> Tensor:
        return self.f(h) - (y * self.g(h)).sum(-1) + self.label_term(y)

    def _label(self, h: Tensor) -> Tensor:
        from fenchel.losses.derived.implicit import implicit_label  # rarely needed, slow to load

        return implicit_label(self._at, h)

    def _conjugate(self, h: Tensor) -> Tensor:
        return self.f(h) - (self._label(h) * self.g(h)).sum(-1)

    def _written_out(self, y: Tensor, h: Tensor) -> Tensor:
        if y.shape == h.shape:
            return y.to(h.dtype)
        if y.shape == h.shape[:-1]:
            return self.labels.encode(y, h)
        raise ValueError(
            f"labels have the scores' shape {tuple(h.shape)} (soft) or {tuple(h.shape[:-1])} "
            f"(compact); got {tuple(y.shape)}. With classes on another axis, pass dim=."
        )


def _named(name: str, cls: type[Loss]) -> type[Loss]:
    cls.name = name
    return cls


LOSSES: Registry[type[Loss]] = Registry("loss", group="fenchel.losses", adopt=_named)


def parse(spec: str) -> Loss:
    """The loss that a string names.

    >>> parse("poly:epsilon=6")
    PolyLoss(epsilon=6)
    """
    return build(LOSSES, "loss", spec)


def require_range(loss: str, name: str, value: float, valid: bool, rule: str) -> None:
    """Refuse a hyper-parameter outside its range, in the words of `rule`."""
    if not valid or not math.isfinite(value):
        raise ValueError(f"{loss} needs a finite {rule}; got {name}={value!r}.")


def _on_last_axis(h: Tensor, dim: int) -> Tensor:
    """Classes to the last axis; half precision is raised, since exp and log need the range."""
    if h.ndim == 0:
        raise ValueError("scores have at least one axis, the classes; got a scalar.")
    if not h.dtype.is_floating_point:
        if h.dtype.is_complex:
            raise TypeError("scores are real numbers; got a complex tensor.")
        h = h.to(torch.get_default_dtype())
    if h.dtype in (torch.float16, torch.bfloat16):
        h = h.float()
    elif h.is_inference():
        h = h.clone()
    return h.movedim(dim, -1)


@contextmanager
def _plain_autograd(h: Tensor) -> Iterator[None]:
    """No autocast, and no inference mode: derived labels differentiate the loss even to predict."""
    outside = torch.is_inference_mode_enabled()
    with (
        torch.autocast(device_type=h.device.type, enabled=False),
        torch.inference_mode(False),
        torch.set_grad_enabled(torch.is_grad_enabled() and not outside),
    ):
        yield
