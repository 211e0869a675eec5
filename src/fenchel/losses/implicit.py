"""The conjugate label as the solution of a linear system, and its gradient by the adjoint system.

With E(h, y) = f(h) - <y, g(h)>, the residual r(h, y) = grad_h E = b - A y is affine in y, where
b = grad f(h) and A = Dg(h)^T. The label solves A y = b. Its gradient needs no third-order graph: for an
incoming gradient v, solve the adjoint A^T nu = v; then the gradient is grad_h <nu, r(h, y)>, with nu and
y held constant. Every product comes from reverse mode on E, so memory stays O(N C).

When labels sum to one, (f, g) is not unique and A may have rank C - 1 (every loss typed with
log_softmax does). Then A y = b is solved together with sum(y) = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

from fenchel.losses.krylov import gmres

Energy = Callable[[Tensor, Tensor], Tensor]
"""E(h, y) of N samples: (N, C), (N, C) -> (N,); affine in y but for terms in y alone."""

DENSE_CLASSES = 32
"""Up to here the C x C matrices are built and factorised, beyond it never."""
RANK_BY_FACTORISATION = 256
"""Up to here the rank is judged on the singular values of a few probes."""
DENSE_ELEMENTS = 2**22
KRYLOV_ELEMENTS = 2**24

Scaling = Literal["none", "softmax"]


@dataclass(frozen=True)
class Plan:
    """How the label of one loss at one number of classes is solved for."""

    classes: int
    sums_to_one: bool
    scaling: Scaling

    @property
    def dense(self) -> bool:
        """Whether the C x C matrices are built."""
        return self.classes <= DENSE_CLASSES


def implicit_label(energy: Energy, h: Tensor, plan: Plan | None = None) -> Tensor:
    """The label y~ of every sample, differentiable; the plan is judged on first use."""
    classes = h.shape[-1]
    plan = plan or plan_for(energy, classes)
    label: Tensor = _ImplicitLabel.apply(h.reshape(-1, classes), energy, plan)  # type: ignore[no-untyped-call]
    return label.reshape(h.shape)


class _ImplicitLabel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, energy: Energy, plan: Plan) -> Tensor:
        label = torch.cat([System(energy, part, plan).label() for part in _parts(h, plan)])
        ctx.save_for_backward(h, label)
        ctx.energy, ctx.plan = energy, plan
        return label

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, None, None]:
        parts = (_parts(tensor, ctx.plan) for tensor in (*ctx.saved_tensors, incoming))
        gradients = [
            System(ctx.energy, h, ctx.plan).label_vjp(label, part)
            for h, label, part in zip(*parts, strict=True)
        ]
        return torch.cat(gradients), None, None


def _parts(tensor: Tensor, plan: Plan) -> tuple[Tensor, ...]:
    """Rows in parts small enough that the working memory stays bounded, however many there are."""
    budget = DENSE_ELEMENTS // plan.classes if plan.dense else KRYLOV_ELEMENTS
    return torch.split(tensor, max(1, budget // plan.classes))


class System:
    """A y = b at fixed logits, columns scaled, with sum(y) = 1 joined in where the plan says so.

    In the scaled unknown w = s y the matrix is A diag(1/s), and the constraint reads
    <min(s)/s, w> = min(s). It is added along z = softmax(h), which no column of a rank-deficient A can
    produce: (A diag(1/s) + z <min(s)/s, .>) w = b + min(s) z.
    """

    def __init__(self, energy: Energy, h: Tensor, plan: Plan) -> None:
        self.energy, self.h, self.plan = energy, h.detach(), plan
        self.b = residual(energy, self.h, torch.zeros_like(self.h))
        self.z = self.h.softmax(-1)
        self.matrix = self._dense_matrix() if plan.dense else None
        self.scale = self._column_scale().clamp_min(torch.finfo(h.dtype).tiny ** 0.5)
        smallest = self.scale.amin(-1, keepdim=True) * plan.sums_to_one
        self.coupling = smallest / self.scale
        self.right_side = self.b + smallest * self.z
        if self.matrix is not None:
            self.matrix = self.matrix / self.scale[:, None, :]
            self.matrix = self.matrix + self.z[:, :, None] * self.coupling[:, None, :]

    def label(self) -> Tensor:
        """The solution y."""
        return self.solve(self.right_side)[0] / self.scale

    def label_vjp(self, label: Tensor, incoming: Tensor) -> Tensor:
        """The gradient that flows to h when `incoming` arrives at the label."""
        if self.matrix is not None:
            adjoint = _solve(self.matrix.mT, incoming / self.scale)
        else:
            adjoint = _gmres(self.transpose_times, incoming / self.scale)[0]
        return hessian_times(self.energy, self.h, label, adjoint)

    def solve(self, right_side: Tensor) -> tuple[Tensor, Tensor, int]:
        """The scaled unknown, its relative residual, and the number of products it took."""
        if self.matrix is None:
            return _gmres(self.times, right_side)
        solution = _solve(self.matrix, right_side)
        missing = (self.matrix @ solution[:, :, None])[:, :, 0] - right_side
        return solution, missing.norm(dim=-1) / right_side.norm(dim=-1), 0

    def times(self, w: Tensor) -> Tensor:
        """The scaled and constrained matrix times w."""
        return self._unscaled_times(w / self.scale) + self.z * _dot(self.coupling, w)

    def transpose_times(self, v: Tensor) -> Tensor:
        """Its transpose times v."""
        product = transpose_times(self.energy, self.h, v)
        return product / self.scale + self.coupling * _dot(self.z, v)

    def _unscaled_times(self, v: Tensor) -> Tensor:
        return self.b - residual(self.energy, self.h, v)

    def _dense_matrix(self) -> Tensor:
        """A, (N, C, C), one product a column."""
        rows, classes = self.h.shape
        basis = torch.eye(classes, dtype=self.h.dtype, device=self.h.device).repeat(rows, 1)
        repeated = residual(self.energy, self.h.repeat_interleave(classes, 0), basis)
        columns = self.b.repeat_interleave(classes, 0) - repeated
        matrix: Tensor = columns.reshape(rows, classes, classes).mT
        return matrix

    def _column_scale(self) -> Tensor:
        if self.matrix is not None:
            return self.matrix.square().sum(-2).sqrt()
        if self.plan.scaling == "none":
            return torch.ones_like(self.h)
        return self._softmax_scale()

    def _softmax_scale(self) -> Tensor:
        """s of A = (I - z 1^T) diag(s), the form of every loss of the softmax alone.

        A 1 = s - z sum(s) leaves one unknown a sample, which a second product determines.
        """
        z = self.z
        ones = self._unscaled_times(torch.ones_like(z))
        probe = torch.linspace(0, 3, z.shape[-1], dtype=z.dtype, device=z.device).cos().expand_as(z)
        direction = z * (probe - _dot(z, probe))
        target = self._unscaled_times(probe) - ones * probe + z * _dot(ones, probe)
        tiny = torch.finfo(z.dtype).tiny
        total = _dot(direction, target) / _dot(direction, direction).clamp_min(tiny)
        scale = (ones + z * total).abs()
        return scale.clamp_min(torch.finfo(z.dtype).eps * scale.amax(-1, keepdim=True))


def residual(energy: Energy, h: Tensor, y: Tensor, *, create_graph: bool = False) -> Tensor:
    """r(h, y) = grad_h E(h, y) = b - A y."""
    with torch.enable_grad():
        h = h if h.requires_grad else h.clone().requires_grad_()
        return _gradient(energy(h, y), h, create_graph=create_graph)


def transpose_times(energy: Energy, h: Tensor, v: Tensor) -> Tensor:
    """A^T v = -grad_y <r(h, y), v>, at y = 0 or anywhere else since r is affine in y."""
    with torch.enable_grad():
        y = torch.zeros_like(h).requires_grad_()
        return -_gradient(residual(energy, h, y, create_graph=True), y, v)


def hessian_times(energy: Energy, h: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """grad_h <r(h, y), v> with y and v held constant."""
    with torch.enable_grad():
        h = h.clone().requires_grad_()
        return _gradient(residual(energy, h, y.detach(), create_graph=True), h, v)


def _gradient(
    value: Tensor, at: Tensor, weights: Tensor | None = None, *, create_graph: bool = False
) -> Tensor:
    """The gradient of sum(value * weights), zero where `value` does not depend on `at`."""
    if not value.requires_grad:
        return torch.zeros_like(at)
    (gradient,) = torch.autograd.grad(
        value,
        at,
        torch.ones_like(value) if weights is None else weights,
        create_graph=create_graph,
        allow_unused=True,
        materialize_grads=True,
    )
    return gradient


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1, keepdim=True)


def _solve(matrix: Tensor, right_side: Tensor) -> Tensor:
    solution: Tensor = torch.linalg.solve_ex(matrix, right_side[:, :, None]).result
    return solution[:, :, 0]


def _gmres(operator: Callable[[Tensor], Tensor], right_side: Tensor) -> tuple[Tensor, Tensor, int]:
    tolerance = 1e-13 if right_side.dtype == torch.float64 else 2e-7
    return gmres(operator, right_side, tolerance=tolerance)


# --- the plan: judged once for every (loss, number of classes) on moderate probe logits -----------


class SingularLossError(ValueError):
    """No unique label makes the prediction stationary."""


@lru_cache(maxsize=256)
def plan_for(
    energy: Energy,
    classes: int,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> Plan:
    """Judge the rank of A, decide whether labels must sum to one, and choose the column scaling."""
    h = probe_logits(classes, dtype=dtype).to(device)
    scalings: tuple[Scaling, ...] = ("none",) if classes <= DENSE_CLASSES else ("none", "softmax")
    candidates = [
        Plan(classes=classes, sums_to_one=constrained, scaling=scaling)
        for constrained in (False, True)
        for scaling in scalings
    ]
    best: tuple[int, Plan] | None = None
    for plan in candidates:
        if best is not None and plan.sums_to_one != best[1].sums_to_one:
            break
        system = System(energy, h, plan)
        if not _is_regular(system):
            continue
        *_, products = system.solve(system.right_side)
        if best is None or products < best[0]:
            best = (products, plan)
    if best is None:
        raise SingularLossError(
            f"the system Dg(h)^T y = grad f(h) has no unique solution at {classes} classes, not even "
            "among labels that sum to one: more than one label would make a prediction stationary. "
            "Check that every class of the target enters the loss and that the scores are not "
            "normalised away."
        )
    _require_stationary(energy, h, best[1])
    return best[1]


def probe_logits(classes: int, *, rows: int = 4, dtype: torch.dtype = torch.float64) -> Tensor:
    """Moderate logits on which a loss is judged: the same ones every time."""
    generator = torch.Generator().manual_seed(classes)
    return torch.randn(rows, classes, generator=generator, dtype=torch.float64).to(dtype)


def _is_regular(system: System) -> bool:
    """Full rank, by singular values for few classes, else by solving for an arbitrary right side."""
    threshold = 1e-9 if system.h.dtype == torch.float64 else 1e-4
    if system.matrix is None and system.plan.classes <= RANK_BY_FACTORISATION:
        classes = system.plan.classes
        basis = torch.eye(classes, dtype=system.h.dtype, device=system.h.device)
        columns = [system.times(basis[k].expand_as(system.h)) for k in range(classes)]
        matrix = torch.stack(columns, dim=-1)
    elif system.matrix is not None:
        matrix = system.matrix
    else:
        generator = torch.Generator().manual_seed(1)
        arbitrary = torch.randn(system.h.shape, generator=generator, dtype=torch.float64)
        _, missing, _ = system.solve(arbitrary.to(system.h))
        return bool((missing < threshold).all())
    values = torch.linalg.svdvals(matrix)
    return bool((values[:, -1] > threshold * values[:, 0]).all())


def _require_stationary(energy: Energy, h: Tensor, plan: Plan) -> None:
    """With rank C - 1 a solution need not exist: say so rather than return the nearest label."""
    system = System(energy, h, plan)
    left = residual(energy, h, system.label())
    threshold = 1e-7 if h.dtype == torch.float64 else 1e-3
    if bool((left.norm(dim=-1) > threshold * (1 + system.b.norm(dim=-1))).any()):
        raise SingularLossError(
            f"no label makes the prediction stationary at {plan.classes} classes: "
            f"|grad_h L| = {float(left.norm(dim=-1).max()):.2g} at the best one. The part of the loss "
            "without the label changes along a direction in which the part with it does not."
        )
