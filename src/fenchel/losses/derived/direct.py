"""Labels without iteration, for losses whose matrix is a diagonal plus a rank of one.

Where a loss sees the logits one by one and through their softmax z, the matrix of `system` is

    A = diag(s) - z q^T

(every loss of the softmax that weights a function of z_k by y_k has this form, and so has every loss with
g_k a function of h_k). Two products then tell s and q, and Sherman and Morrison's formula gives label
and adjoint in O(C). Often s is one number, the same at all logits (cross-entropy, label smoothing, the
squared loss): then A moves labels of one sum like that number, and no product is needed.

Whether a loss is of this kind is judged once on probes; at every sample the residual of the label says
whether the formula held there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fenchel.losses.derived.system import Energy, Products, residual

SMALLEST = 1e-6
"""Below this relative size, cancellation has cost more than six of float64's sixteen digits."""
STATIONARY = 1e-9
"""The largest residual of a label that is trusted, relative to the terms that it is made of."""
AGREEMENT = 1e-8
"""The largest relative difference between what is measured on probes and what the form predicts."""


@dataclass(frozen=True)
class Form:
    """What is known of A at one number of classes."""

    sums_to_one: bool
    """Whether A y = b is solved among labels that sum to one: then q drops out of the formulas."""
    constant: float | None = None
    """s, if it is one number at all logits and q is zero or acts on the sum of the label alone."""


class Solution(Protocol):
    """Label and adjoint of some samples by a formula."""

    h: Tensor

    def label(self) -> Tensor:
        """The label y."""

    def adjoint(self, incoming: Tensor) -> Tensor:
        """nu with A^T nu = incoming, up to a constant where labels sum to one."""

    def stationary(self, label: Tensor, left: Tensor) -> Tensor:
        """The samples whose label can be trusted, given the residual that it leaves."""


def solve_directly(energy: Energy, h: Tensor, form: Form) -> Solution:
    """The label of every sample of h, float64 (N, C), in closed form."""
    if form.constant is not None:
        return _Constant(energy, h, form.constant)
    return _RankOne(energy, h, sums_to_one=form.sums_to_one)


def find_form(energy: Energy, h: Tensor, sums_to_one: Iterable[bool]) -> Form | None:
    """The first of these forms that holds at the probes h, flat and peaked; None if none does."""
    for choice in sums_to_one:
        found = [_RankOne(energy, width * h, sums_to_one=choice) for width in (1.0, 3.0)]
        if all(solution.fits() for solution in found):
            constant = float(found[0].scale[0, 0])
            number = _Constant(energy, 3.0 * h, constant)
            same = all(_agree(solution.scale, solution.scale * 0 + constant) for solution in found)
            fits = same and _agree(number.label(), found[1].label())
            return Form(choice, constant if fits else None)
    return None


class _Constant:
    """r(h, y) - r(h, y') = s (y' - y) for labels of one sum: so y = u + r(h, u) / s, u uniform."""

    def __init__(self, energy: Energy, h: Tensor, scale: float) -> None:
        self.h, self.scale = h.detach(), scale
        self.uniform = 1 / h.shape[-1]
        self.step = residual(energy, self.h, torch.full_like(self.h, self.uniform)) / scale

    def label(self) -> Tensor:
        return self.step + self.uniform

    def adjoint(self, incoming: Tensor) -> Tensor:
        return incoming / self.scale

    def stationary(self, label: Tensor, left: Tensor) -> Tensor:
        trusted: Tensor = left.norm(dim=-1) <= STATIONARY * abs(self.scale) * label.norm(dim=-1)
        return trusted


class _RankOne:
    """A = diag(s) - z q^T, measured at every sample."""

    def __init__(self, energy: Energy, h: Tensor, *, sums_to_one: bool) -> None:
        self.energy, self.h, self.sums_to_one = energy, h.detach(), sums_to_one
        self.z = self.h.softmax(-1)
        self.products = Products(energy, self.h)
        self.b = self.products.r.detach()
        self.down = self.products.transpose_times(torch.ones_like(self.h))  # A^T 1 = s - q
        self.scale, self.reliable = self._scale()
        self.weight = self.z / self.scale
        pivot = self.weight if sums_to_one else self.weight * self.down
        self.pivot = pivot.sum(-1, keepdim=True)
        self.reliable &= (self.pivot.abs() > STATIONARY)[:, 0]

    def _scale(self) -> tuple[Tensor, Tensor]:
        """s, and the samples at which cancellation leaves enough of it.

        The row of A that belongs to the largest class is -z_top q, but for s_top at its own place.
        """
        top = self.z.argmax(-1, keepdim=True)
        corner = torch.zeros_like(self.z).scatter_(-1, top, 1.0)
        row = self.products.transpose_times(corner)
        others = self.z.scatter(-1, top, 0.0).sum(-1, keepdim=True)  # 1 - z_top, unrounded
        z, down = self.z.gather(-1, top), self.down.gather(-1, top)
        at_top = (row.gather(-1, top) - z * down) / others
        scale = (self.down - row / z).scatter(-1, top, at_top)
        accurate = (scale.abs() > SMALLEST * self.down.abs()) & (scale != 0)
        return scale, accurate.all(-1) & (others[:, 0] > SMALLEST)

    def label(self) -> Tensor:
        """y = (b + t z) / s, with t = <q, y>."""
        share = self.b / self.scale
        if self.sums_to_one:
            t = (1 - share.sum(-1, keepdim=True)) / self.pivot
        else:
            t = _dot(self.scale - self.down, share) / self.pivot
        return share + self.weight * t

    def adjoint(self, incoming: Tensor) -> Tensor:
        t = _dot(self.weight, incoming) / self.pivot
        if self.sums_to_one:
            return (incoming - t) / self.scale
        return (incoming + (self.scale - self.down) * t) / self.scale

    def stationary(self, label: Tensor, left: Tensor) -> Tensor:
        size = self.b.norm(dim=-1) + (self.scale * label).norm(dim=-1)
        # With <=, a comparison with NaN is false: what is not finite is not trusted.
        trusted: Tensor = self.reliable & (left.norm(dim=-1) <= STATIONARY * size)
        return trusted

    def fits(self) -> bool:
        """Whether the form holds on these samples: arbitrary products, and the label's residual."""
        generator = torch.Generator().manual_seed(2)
        v = torch.randn(self.h.shape, generator=generator, dtype=torch.float64).to(self.h)
        q = self.scale - self.down
        label = self.label()
        return (
            _agree(self.products.times(v) + self.z * _dot(q, v), self.scale * v)
            and _agree(self.products.transpose_times(v) + q * _dot(self.z, v), self.scale * v)
            and bool(self.stationary(label, residual(self.energy, self.h, label)).all())
        )


def _agree(a: Tensor, b: Tensor) -> bool:
    return bool(((a - b).norm(dim=-1) <= AGREEMENT * b.norm(dim=-1)).all())


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1, keepdim=True)
