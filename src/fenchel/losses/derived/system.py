"""The linear system behind a conjugate label at fixed logits, dense or known through products alone.

With E(h, y) = f(h) - <y, g(h)>, the residual r(h, y) = grad_h E = b - A y is affine in y, where
b = grad f(h) and A = Dg(h)^T. Every product comes from reverse mode on E.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from fenchel.losses.derived.krylov import gmres

Energy = Callable[[Tensor, Tensor], Tensor]
"""E(h, y) of N samples: (N, C), (N, C) -> (N,); affine in y but for terms in y alone."""

DENSE_CLASSES = 32
"""With up to this many classes the C x C matrices of all samples are built and factorised."""
FACTORISED_CLASSES = 256
"""With up to this many, those of a few samples may be: to judge the rank, or where GMRES fails."""

Scaling = Literal["none", "softmax", "rows"]
"""`softmax` scales the unknown, from A = (I - z 1^T) diag(s).
`rows` scales the equations, from A = diag(z) (I - 1 z^T) Dg(z)^T.
"""


@dataclass(frozen=True)
class SolverPlan:
    """How the label of one loss at one number of classes is solved for."""

    classes: int
    sums_to_one: bool
    scaling: Scaling

    @property
    def dense(self) -> bool:
        """Whether the C x C matrices are built."""
        return self.classes <= DENSE_CLASSES


class System:
    """A y = b at fixed logits, scaled, with sum(y) = 1 joined in where the plan says so.

    In the scaled unknown w = s y and with equations weighted by t the matrix is diag(t) A diag(1/s), and
    the constraint reads <c, w> = min(s) with c = min(s)/s. It is added along d = t z, z = softmax(h),
    which no column of a rank-deficient A can produce: (diag(t) A diag(1/s) + d c^T) w = t b + min(s) d.

    `careful` is for logits at which rounding has eaten a column: dense, its scales kept above rounding,
    the solution of least norm.
    """

    def __init__(
        self, energy: Energy, h: Tensor, plan: SolverPlan, *, careful: bool = False
    ) -> None:
        self.energy, self.h, self.plan, self.careful = energy, h.detach(), plan, careful
        self.b = residual(energy, self.h, torch.zeros_like(self.h))
        self.z = self.h.softmax(-1)
        self.products = Products(energy, self.h)
        self.in_range = torch.ones_like(self.h[:, 0], dtype=torch.bool)
        self.matrix = self._dense_matrix() if plan.dense or careful else None
        self.weight = self._row_weight()
        if self.matrix is not None:
            self.matrix = self.weight[:, :, None] * self.matrix
        self.scale = self._column_scale().clamp_min(torch.finfo(h.dtype).tiny ** 0.5)
        smallest = self.scale.amin(-1, keepdim=True) * plan.sums_to_one
        self.coupling = smallest / self.scale
        self.direction = self.weight * self.z
        self.right_side = self.weight * self.b + smallest * self.direction
        if self.matrix is not None:
            self.matrix = self.matrix / self.scale[:, None, :]
            self.matrix = self.matrix + self.direction[:, :, None] * self.coupling[:, None, :]

    def label(self) -> Tensor:
        """The solution y."""
        return self.label_and_gap()[0]

    def label_and_gap(self) -> tuple[Tensor, Tensor]:
        """The solution y, and by how much each sample's equations are missed, relative to their size."""
        solution, missing, _ = self.solve()
        label = solution / self.scale
        failed = self._failed(missing)
        if failed is not None:
            label[failed], missing[failed] = self._careful(failed).label_and_gap()
        return label, missing

    def label_vjp(self, label: Tensor, incoming: Tensor) -> Tensor:
        """The gradient that flows to h when `incoming` arrives at the label."""
        return hessian_times(self.energy, self.h, label, self.adjoint(incoming)[0])

    def solve(self, right_side: Tensor | None = None) -> tuple[Tensor, Tensor, int]:
        """The scaled unknown, its relative residual, and the number of products it took."""
        right_side = self.right_side if right_side is None else right_side
        if self.matrix is None:
            return _gmres(self.times, right_side)
        return self._factorised(self.matrix, right_side)

    def adjoint(self, incoming: Tensor) -> tuple[Tensor, int]:
        """nu with A^T nu = incoming, up to the constraint, and the number of products it took."""
        right_side = incoming / self.scale
        if self.matrix is None:
            solution, missing, products = _gmres(self.transpose_times, right_side)
        else:
            solution, missing, products = self._factorised(self.matrix.mT, right_side)
        adjoint = self.weight * solution
        failed = self._failed(missing)
        if failed is not None:
            adjoint[failed] = self._careful(failed).adjoint(incoming[failed])[0]
        return adjoint, products

    def times(self, w: Tensor) -> Tensor:
        """The scaled and constrained matrix times w."""
        product = self.products.times(w / self.scale)
        return self.weight * product + self.direction * _dot(self.coupling, w)

    def transpose_times(self, v: Tensor) -> Tensor:
        """Its transpose times v."""
        product = self.products.transpose_times(self.weight * v)
        return product / self.scale + self.coupling * _dot(self.direction, v)

    def _dense_matrix(self) -> Tensor:
        """A, (N, C, C), by one product per row."""
        basis = torch.eye(self.plan.classes, dtype=self.h.dtype, device=self.h.device)
        rows = [self.products.transpose_times(row.expand_as(self.h)) for row in basis]
        matrix = torch.stack(rows, dim=-2)
        # A class that does not move the loss leaves rounding, which scaling would blow up to a column.
        rounding = 64 * torch.finfo(self.h.dtype).eps * matrix.abs().amax(-1, keepdim=True)
        noise = (matrix.abs() <= rounding).all(-2, keepdim=True)
        cleaned: Tensor = matrix.masked_fill(noise, 0.0)
        return cleaned

    def _failed(self, missing: Tensor) -> Tensor | None:
        """The samples to solve again with care, if any and if few enough classes allow it."""
        if self.careful or self.plan.classes > FACTORISED_CLASSES:
            return None
        tolerance = 1e-9 if missing.dtype == torch.float64 else 1e-4
        failed = ~((missing <= tolerance) & self.in_range)
        return failed if bool(failed.any()) else None

    def _careful(self, failed: Tensor) -> System:
        return System(self.energy, self.h[failed], self.plan, careful=True)

    def _factorised(self, matrix: Tensor, right_side: Tensor) -> tuple[Tensor, Tensor, int]:
        if self.careful:
            # Scores that are not finite give labels that are not; the factorisation would raise.
            usable = matrix.isfinite().all(-1, keepdim=True).all(-2, keepdim=True)
            inverse = torch.linalg.pinv(matrix.masked_fill(~usable, 0.0))
            solution = (inverse @ right_side[:, :, None]).masked_fill(~usable, torch.nan)
        else:
            solution = torch.linalg.solve_ex(matrix, right_side[:, :, None]).result
        missing = (matrix @ solution)[:, :, 0] - right_side
        size = right_side.norm(dim=-1).clamp_min(torch.finfo(right_side.dtype).tiny)
        return solution[:, :, 0], missing.norm(dim=-1) / size, 0

    def _row_weight(self) -> Tensor:
        if self.matrix is not None:
            return 1 / self._within_range(self.matrix.norm(dim=-1))
        if self.plan.scaling == "rows":
            return 1 / self.z.clamp_min(torch.finfo(self.z.dtype).eps ** 2)
        return torch.ones_like(self.z)

    def _column_scale(self) -> Tensor:
        if self.matrix is not None:
            return self._within_range(self.matrix.norm(dim=-2))
        return self._softmax_scale() if self.plan.scaling == "softmax" else torch.ones_like(self.h)

    def _within_range(self, norm: Tensor) -> Tensor:
        """Norms to scale by: not by zeros, and with care not by anything that rounding made."""
        largest = norm.amax(-1, keepdim=True)
        largest = torch.where(largest > 0, largest, 1.0)
        kind = torch.finfo(norm.dtype)
        if self.careful:
            return torch.where(norm > kind.eps * largest, norm, largest)
        # Products of two probabilities must not underflow.
        self.in_range &= ((norm > kind.tiny**0.25 * largest) | (norm == 0)).all(-1)
        return torch.where(norm > 0, norm, largest)

    def _softmax_scale(self) -> Tensor:
        """s of A = (I - z 1^T) diag(s), the form of every loss of the softmax alone.

        A 1 = s - z sum(s) leaves one unknown per sample, which a second product determines.
        """
        z = self.z
        ones = self.products.times(torch.ones_like(z))
        probe = torch.linspace(0, 3, z.shape[-1], dtype=z.dtype, device=z.device).cos().expand_as(z)
        direction = z * (probe - _dot(z, probe))
        target = self.products.times(probe) - ones * probe + z * _dot(ones, probe)
        tiny = torch.finfo(z.dtype).tiny
        total = _dot(direction, target) / _dot(direction, direction).clamp_min(tiny)
        scale = (ones + z * total).abs()
        return scale.clamp_min(torch.finfo(z.dtype).eps ** 2 * scale.amax(-1, keepdim=True))


def residual(energy: Energy, h: Tensor, y: Tensor, *, create_graph: bool = False) -> Tensor:
    """r(h, y) = grad_h E(h, y) = b - A y."""
    with torch.enable_grad():
        h = h if h.requires_grad else h.clone().requires_grad_()
        return gradient_of(energy(h, y), h, create_graph=create_graph)


class Products:
    """A v and A^T v at fixed logits, each one backward pass through a graph that is kept.

    The residual is differentiated rather than evaluated: b - r(h, v) would lose A v in the rounding of
    b where the softmax saturates. A^T u = -grad_y <r(h, y), u> is linear in u, so that its derivative
    in the direction v, summed, is A v.
    """

    def __init__(self, energy: Energy, h: Tensor) -> None:
        with torch.enable_grad():
            self.y = torch.zeros_like(h).requires_grad_()
            self.r = residual(energy, h, self.y, create_graph=True)

    @cached_property
    def _transposed(self) -> tuple[Tensor, Tensor]:
        """u, and A^T u with its graph: built when it is first needed, since not every caller needs it."""
        with torch.enable_grad():
            u = torch.zeros_like(self.y).requires_grad_()
            return u, gradient_of(self.r, self.y, u, create_graph=True)

    def times(self, v: Tensor) -> Tensor:
        """A v."""
        u, transposed = self._transposed
        return -gradient_of(transposed, u, v, keep_graph=True)

    def transpose_times(self, v: Tensor) -> Tensor:
        """A^T v."""
        return -gradient_of(self.r, self.y, v, keep_graph=True)


def hessian_times(energy: Energy, h: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """grad_h <r(h, y), v> with y and v held constant."""
    with torch.enable_grad():
        h = h.clone().requires_grad_()
        return gradient_of(residual(energy, h, y.detach(), create_graph=True), h, v)


def gradient_of(
    value: Tensor,
    at: Tensor,
    weights: Tensor | None = None,
    *,
    create_graph: bool = False,
    keep_graph: bool = False,
) -> Tensor:
    """The gradient of sum(value * weights), zero where `value` does not depend on `at`."""
    if not value.requires_grad:
        return torch.zeros_like(at)
    (gradient,) = torch.autograd.grad(
        value,
        at,
        torch.ones_like(value) if weights is None else weights,
        create_graph=create_graph,
        retain_graph=create_graph or keep_graph,
        allow_unused=True,
        materialize_grads=True,
    )
    return gradient


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1, keepdim=True)


def _gmres(operator: Callable[[Tensor], Tensor], right_side: Tensor) -> tuple[Tensor, Tensor, int]:
    tolerance = 1e-13 if right_side.dtype == torch.float64 else 2e-7
    return gmres(operator, right_side, tolerance=tolerance)
