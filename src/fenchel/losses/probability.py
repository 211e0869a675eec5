"""Any loss of the true class's probability, from its scalar function alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional as F

from fenchel.losses.true_class import TrueClassLoss, log_complement


@dataclass(frozen=True, kw_only=True)
class LogitPenaltyLoss(TrueClassLoss):
    """A true-class loss known only through phi at z = sigmoid(r), differentiated automatically.

    With chi(r) = phi(sigmoid(r)) the slope is -z phi'(z) = -chi'(r) / (1 - z). Computed in float64 where
    the device has it, and for r in a range in which phi and its second derivative are safe: beyond
    it the label has long reached its limit.
    """

    @abstractmethod
    def of_logit(self, r: Tensor) -> Tensor:
        """chi(r) = phi(sigmoid(r)), elementwise."""

    def penalty(self, log_z: Tensor) -> Tensor:
        r = _logit(log_z, low=-690.0 if has_float64(log_z) else -80.0)
        return self.of_logit(r).to(log_z.dtype)

    def log_slope(self, log_z: Tensor) -> Tensor:
        r = _logit(log_z, low=-100.0 if has_float64(log_z) else -20.0)
        slope = -elementwise_derivative(self.of_logit, r)
        log_slope = slope.clamp_min(torch.finfo(r.dtype).tiny).log() + F.softplus(r)
        return log_slope.to(log_z.dtype)


@final
@dataclass(frozen=True, kw_only=True)
class ProbabilityLoss(LogitPenaltyLoss):
    """L = phi(z_y) for any decreasing phi on (0, 1), applied elementwise to probabilities.

    The label is -1/phi'(z), normalised, and the objective sum_k label_k phi(z_k).

    >>> quadratic = ProbabilityLoss(phi=lambda z: (1 - z) ** 2 - z.log())
    >>> quadratic.label(torch.tensor([2.0, 0.0, 0.0]))
    tensor([0.7671, 0.1165, 0.1165])
    """

    name: ClassVar[str] = "probability"
    phi: Callable[[Tensor], Tensor]

    def __post_init__(self) -> None:
        z = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
        value = self.phi(z)
        if not isinstance(value, Tensor) or value.shape != z.shape:
            came = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                f"phi works elementwise on probabilities: given shape {tuple(z.shape)} it returned "
                f"{came}. Write it with torch operations and no reduction."
            )
        if not bool(value.isfinite().all()) or bool((value.diff() >= 0).any()):
            raise ValueError(
                "phi must be finite and decreasing on (0, 1), since a likelier true class must cost "
                f"less; got phi({z[0]:g}) = {value[0]:g}, phi(0.5) = {value[49]:g}, "
                f"phi({z[-1]:g}) = {value[-1]:g}. Check its sign."
            )

    def of_logit(self, r: Tensor) -> Tensor:
        return self.phi(r.sigmoid())


def elementwise_derivative(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """The derivative of an elementwise function, itself differentiable when `at` is."""
    differentiable = at.requires_grad
    with torch.enable_grad():
        point = at if differentiable else at.detach().requires_grad_()
        (derivative,) = torch.autograd.grad(
            function(point).sum(), point, create_graph=differentiable, materialize_grads=True
        )
    return derivative


def has_float64(tensor: Tensor) -> bool:
    """Whether the device of a tensor computes in double precision."""
    return tensor.device.type != "mps"


def _logit(log_z: Tensor, *, low: float) -> Tensor:
    """log(z / (1 - z)), clamped so that neither z nor 1 - z is lost to rounding in phi."""
    high = 25.0 if has_float64(log_z) else 10.0
    wide = log_z.double() if has_float64(log_z) else log_z
    return (wide - log_complement(wide)).clamp(low, high)
