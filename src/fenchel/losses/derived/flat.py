"""Whether a test-time objective is flat: adapting with it would do nothing, silently."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fenchel.losses.derived.system import Energy


def is_flat(energy: Energy, objective: Callable[[Tensor], Tensor], h: Tensor) -> bool:
    """Whether the objective has no gradient at the probes h, (N, C)."""
    return _flat_in_logits(energy, h) or _flat_objective(objective, h)


def _flat_in_logits(energy: Energy, h: Tensor) -> bool:
    """Piecewise linear in the logits: then the label is piecewise constant."""
    y = h.flip(0).softmax(-1)
    with torch.enable_grad():
        point = h.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(energy(point, y).sum(), point, create_graph=True)
        if not gradient.requires_grad:
            return True
        probe = torch.ones_like(gradient) * torch.arange(1, h.shape[-1] + 1).to(gradient)
        (curvature,) = torch.autograd.grad(gradient, point, probe, materialize_grads=True)
    return bool((curvature.abs() <= 1e-9).all())


def _flat_objective(objective: Callable[[Tensor], Tensor], h: Tensor) -> bool:
    with torch.enable_grad():
        point = h.clone().requires_grad_()
        value = objective(point)
        (gradient,) = torch.autograd.grad(value.sum(), point, materialize_grads=True)
    size = 1e-8 if h.dtype == torch.float64 else 1e-4
    return bool((gradient.abs() <= size).all())
