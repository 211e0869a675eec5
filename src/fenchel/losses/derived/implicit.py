"""The conjugate label as the solution of a linear system, and its gradient by the adjoint system.

With E(h, y) = f(h) - <y, g(h)>, the residual r(h, y) = grad_h E = b - A y is affine in y, where
b = grad f(h) and A = Dg(h)^T. The label solves A y = b. Its gradient needs no third-order graph: for an
incoming gradient v, solve the adjoint A^T nu = v; then the gradient is grad_h <nu, r(h, y)>, with nu and
y held constant. Every product comes from reverse mode on E, so memory stays O(N C).

When labels sum to one, (f, g) is not unique and A may have rank C - 1 (every loss typed with
log_softmax does). Then A y = b is solved together with sum(y) = 1.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from fenchel.losses.derived.system import (
    DENSE_CLASSES,
    FACTORISED_CLASSES,
    Energy,
    Scaling,
    SolverPlan,
    System,
    residual,
)

DENSE_ELEMENTS = 2**22
KRYLOV_ELEMENTS = 2**18
WIDE = 6.0
MISSED = 1e-3
"""Relative residual above which a label does not count as a solution of its equations."""


def implicit_label(energy: Energy, h: Tensor, plan: SolverPlan | None = None) -> Tensor:
    """The label y~ of every sample, differentiable; the plan is judged on first use."""
    classes = h.shape[-1]
    plan = plan or plan_for(energy, classes)
    label: Tensor = _ImplicitLabel.apply(h.reshape(-1, classes), energy, plan)  # type: ignore[no-untyped-call]
    return label.reshape(h.shape)


class _ImplicitLabel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, energy: Energy, plan: SolverPlan) -> Tensor:
        solved = [System(energy, part, plan).label_and_gap() for part in _parts(h, plan)]
        label, gap = (torch.cat(found) for found in zip(*solved, strict=True))
        if not plan.dense:
            _warn_of_missed_equations(gap)
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


class UnsolvedLabelWarning(UserWarning):
    """The iterative solver stopped short: the objective is not quite the conjugate."""


def _warn_of_missed_equations(gap: Tensor) -> None:
    missed = gap > MISSED  # scores that are not finite are the adapter's business
    if bool(missed.any()):
        warnings.warn(
            f"the conjugate label of {int(missed.sum())} of {len(gap)} samples misses its equations by "
            f"up to {float(gap[missed].max()):.1g} of their size: the solver did not converge at such "
            "extreme scores. Take a higher temperature or a closed form (`fenchel list losses`).",
            UnsolvedLabelWarning,
            stacklevel=2,
        )


def _parts(tensor: Tensor, plan: SolverPlan) -> tuple[Tensor, ...]:
    """Rows in parts small enough that the working memory stays bounded, however many there are."""
    budget = DENSE_ELEMENTS // plan.classes if plan.dense else KRYLOV_ELEMENTS
    return torch.split(tensor, max(1, budget // plan.classes))


# --- the plan: judged once for every (loss, number of classes) on moderate probe logits -----------


class SingularLossError(ValueError):
    """No unique label makes the prediction stationary."""


@lru_cache(maxsize=256)
def plan_for(
    energy: Energy,
    classes: int,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> SolverPlan:
    """Judge the rank of A, decide whether labels must sum to one, and choose the scaling."""
    h = probe_logits(classes, dtype=dtype).to(device)
    scalings: tuple[Scaling, ...] = (
        ("none",) if classes <= DENSE_CLASSES else ("none", "softmax", "rows")
    )
    candidates = [
        SolverPlan(classes=classes, sums_to_one=constrained, scaling=scaling)
        for constrained in (False, True)
        for scaling in scalings
    ]
    best: tuple[int, SolverPlan] | None = None
    for plan in candidates:
        if best is not None and plan.sums_to_one != best[1].sums_to_one:
            break
        system = System(energy, h, plan)
        if not _is_regular(system):
            continue
        products = _products_needed(System(energy, WIDE * h, plan))
        if best is None or products < best[0]:
            best = (products, plan)
    if best is None:
        raise SingularLossError(
            f"the system Dg(h)^T y = grad f(h) has no unique solution at {classes} classes, not even "
            "among labels that sum to one (or is too ill-conditioned to tell): more than one label "
            "would make a prediction stationary. Check that every class of the target enters the loss "
            "and that the scores are not normalised away."
        )
    _require_stationary(energy, h, best[1])
    return best[1]


def probe_logits(classes: int, *, rows: int = 4, dtype: torch.dtype = torch.float64) -> Tensor:
    """Moderate logits on which a loss is judged: the same ones every time."""
    generator = torch.Generator().manual_seed(classes)
    return torch.randn(rows, classes, generator=generator, dtype=torch.float64).to(dtype)


def _products_needed(system: System) -> int:
    """What a label and its gradient cost at logits as wide as those of trained networks."""
    return system.solve()[2] + system.adjoint(system.h.flip(0))[1]


def _is_regular(system: System) -> bool:
    """Full rank, by singular values for few classes, else by solving for an arbitrary right side."""
    threshold = 1e-9 if system.h.dtype == torch.float64 else 1e-4
    if system.matrix is None and system.plan.classes <= FACTORISED_CLASSES:
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


def _require_stationary(energy: Energy, h: Tensor, plan: SolverPlan) -> None:
    """Refuse a system of rank C - 1 without a solution, rather than return the nearest label."""
    system = System(energy, h, plan)
    left = residual(energy, h, system.label())
    threshold = 1e-7 if h.dtype == torch.float64 else 1e-3
    if bool((left.norm(dim=-1) > threshold * (1 + system.b.norm(dim=-1))).any()):
        raise SingularLossError(
            f"no label makes the prediction stationary at {plan.classes} classes: "
            f"|grad_h L| = {float(left.norm(dim=-1).max()):.2g} at the best one. The part of the loss "
            "without the label changes along a direction in which the part with it does not."
        )
