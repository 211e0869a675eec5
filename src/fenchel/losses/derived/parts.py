"""Label and objective of a derived loss, a few samples at a time.

Working memory then is that of a part, which fits into a processor's cache, however many samples and classes
there are. The objective's gradient is computed together with its value: what stays for the backward
pass is one tensor of the shape of h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fenchel.losses.derived.direct import Form, Solution, solve_directly
from fenchel.losses.derived.system import Energy, gradient_of, hessian_times, residual

PART_ELEMENTS = 2**16


@dataclass(frozen=True)
class InParts:
    """How a loss is evaluated: by a formula where that is accurate, and by the solver elsewhere."""

    energy: Energy
    value: Callable[[Tensor, Tensor], Tensor] | None
    """The objective at a label, f(h) - <y, g(h)>; None if that is the energy itself."""
    form: Form
    other_label: Callable[[Tensor], Tensor]
    """The label by the solver: slower, valid at all logits, differentiable."""
    other_objective: Callable[[Tensor], Tensor]

    def label(self, h: Tensor) -> Tensor:
        """The label, (N, C) in the precision of h, differentiable once."""
        label: Tensor = _Label.apply(h, self)  # type: ignore[no-untyped-call]
        return label

    def objective(self, h: Tensor) -> Tensor:
        """The objective, (N,) in the precision of h; differentiable as often as by the solver."""
        differentiable = torch.is_grad_enabled() and h.requires_grad
        value: Tensor = _Objective.apply(h, self, differentiable)  # type: ignore[no-untyped-call]
        return value

    def direct(self, h: Tensor) -> Solution:
        """The closed form at a part of the samples."""
        return solve_directly(self.energy, h.double(), self.form)

    def label_of_part(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """The label of a few samples, and for which of them the formula gave it."""
        direct = self.direct(h)
        label = direct.label()
        fine = direct.stationary(label, residual(self.energy, direct.h, label))
        if not bool(fine.all()):
            with torch.no_grad():
                label[~fine] = self.other_label(h[~fine]).to(label)
        return label, fine

    def label_vjp_of_part(self, h: Tensor, label: Tensor, fine: Tensor, incoming: Tensor) -> Tensor:
        """The gradient that flows to a few samples when `incoming` arrives at their labels."""
        direct = self.direct(h)
        adjoint = direct.adjoint(incoming.double())
        gradient = hessian_times(self.energy, direct.h, label.double(), adjoint)
        if not bool(fine.all()):
            gradient[~fine] = _gradient(self.other_label, h[~fine], incoming[~fine])[1].to(gradient)
        return gradient

    def objective_of_part(self, h: Tensor, *, differentiable: bool) -> tuple[Tensor, Tensor | None]:
        """Objective and gradient: by stationarity the latter flows through the label alone."""
        direct = self.direct(h)
        with torch.enable_grad():
            label = direct.label().requires_grad_()
            point = direct.h.clone().requires_grad_()
            value = self.energy(point, label)
            left = gradient_of(value, point, create_graph=differentiable, keep_graph=True)
            if self.value is not None:
                value = self.value(direct.h, label)
            slope = gradient_of(value, label, keep_graph=True) if differentiable else None
        value, fine = value.detach(), direct.stationary(label.detach(), left.detach())
        gradient = None
        if slope is not None:
            gradient = gradient_of(left, point, direct.adjoint(slope))
        if not bool(fine.all()):
            other, other_gradient = _gradient(self.other_objective, h[~fine])
            value[~fine] = other.to(value)
            if gradient is not None:
                gradient[~fine] = other_gradient.to(gradient)
        return value, gradient


def _gradient(
    function: Callable[[Tensor], Tensor], h: Tensor, incoming: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        point = h.detach().clone().requires_grad_()
        value = function(point)
        incoming = torch.ones_like(value) if incoming is None else incoming.to(value)
        (gradient,) = torch.autograd.grad(value, point, incoming)
    return value.detach(), gradient


def _ranges(h: Tensor) -> list[slice]:
    rows = max(1, PART_ELEMENTS // h.shape[-1])
    return [slice(start, start + rows) for start in range(0, len(h), rows)]


class _Label(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, ways: InParts) -> Tensor:
        label, fine = torch.empty_like(h), torch.empty(len(h), dtype=torch.bool, device=h.device)
        for rows in _ranges(h):
            label[rows], fine[rows] = ways.label_of_part(h[rows])
        ctx.save_for_backward(h, label, fine)
        ctx.ways = ways
        return label

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, None]:
        h, label, fine = ctx.saved_tensors
        gradient = torch.empty_like(h)
        for rows in _ranges(h):
            gradient[rows] = ctx.ways.label_vjp_of_part(
                h[rows], label[rows], fine[rows], incoming[rows]
            )
        return gradient, None


class _Objective(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, ways: InParts, differentiable: bool) -> Tensor:
        value = torch.empty_like(h[:, 0])
        gradient = torch.empty_like(h) if differentiable else None
        for rows in _ranges(h):
            value[rows], slope = ways.objective_of_part(h[rows], differentiable=differentiable)
            if gradient is not None and slope is not None:
                gradient[rows] = slope
        ctx.save_for_backward(h, gradient)
        ctx.ways = ways
        return value

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, None, None]:
        h, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is needed
            value = ctx.ways.other_objective(h)
            (gradient,) = torch.autograd.grad(value, h, incoming, create_graph=True)
            return gradient, None, None
        return incoming[:, None] * gradient, None, None
