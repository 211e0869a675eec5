"""Labels without iteration, for losses whose matrix is a diagonal plus a rank of one.

Where a loss sees the logits one by one and through their softmax z, the matrix of `system` is

    A = diag(s) - z q^T

(every loss of the softmax that weights a function of z_k by y_k has this form, and so has every loss with
g_k a function of h_k). Three products then tell s and q, and Sherman and Morrison's formula gives label
and adjoint in O(C). Whether a loss is of this kind is judged once on probes; at every sample the
residual of the label says whether the formula held there. Often s is the same at all logits (cross-entropy,
label smoothing, class weights); then no product is needed at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from fenchel.losses.system import Energy, Products, residual

SMALLEST = 1e-6
"""Of what is lost by cancellation beyond it, six digits of float64's sixteen."""
STATIONARY = 1e-9
"""A label's residual, relative to the terms that it is made of."""
AGREEMENT = 1e-8
"""Of what is measured on probes and what the form predicts, relative."""


@dataclass(frozen=True, eq=False)
class Form:
    """What is known of A at one number of classes."""

    sums_to_one: bool
    """Whether A y = b is solved among labels that sum to one: then q drops out of the formulas."""
    scale: Tensor | None = None
    """s, (C,), if it is the same at all logits; q then is s (labels sum to one) or zero."""


def find_form(energy: Energy, h: Tensor, sums_to_one: Iterable[bool]) -> Form | None:
    """The first of these forms that holds at the probes h, flat and peaked; None if none does."""
    for choice in sums_to_one:
        found = [Direct(energy, width * h, Form(choice)) for width in (1.0, 3.0)]
        if all(direct.fits() for direct in found):
            scale = torch.cat([direct.scale for direct in found])
            constant = _agree(scale, scale[:1]) and (
                choice or all(_agree(direct.down, direct.scale) for direct in found)
            )
            return Form(choice, scale[0] if constant else None)
    return None


class Direct:
    """The label of every sample of h, float64 (N, C), in closed form."""

    def __init__(self, energy: Energy, h: Tensor, form: Form) -> None:
        self.energy, self.h, self.form = energy, h.detach(), form
        self.z = self.h.softmax(-1)
        if form.scale is None:
            self.products = Products(energy, self.h)
            self.b = self.products.r.detach()
            self.scale, self.down, self.reliable = self._measured()
        else:
            self.b = residual(energy, self.h, torch.zeros_like(self.h))
            self.scale = self.down = form.scale.to(self.h).expand_as(self.h)
            self.reliable = torch.ones_like(self.h[:, 0], dtype=torch.bool)
        self.weight = self.z / self.scale
        pivot = self.weight if form.sums_to_one else self.weight * self.down
        self.pivot = pivot.sum(-1, keepdim=True)
        self.reliable &= (self.pivot.abs() > STATIONARY)[:, 0]

    def _measured(self) -> tuple[Tensor, Tensor, Tensor]:
        """s, A^T 1 = s - q, and the samples at which cancellation leaves enough of s.

        A 1 = s - z sum(q) leaves one unknown, which the column of the largest class tells: that class's
        own s is then accurate also where the softmax saturates.
        """
        all_across = self.products.times(torch.ones_like(self.h))
        all_down = self.products.transpose_times(torch.ones_like(self.h))
        top = self.z.argmax(-1, keepdim=True)
        others = self.z.scatter(-1, top, 0.0).sum(-1, keepdim=True)
        corner = torch.zeros_like(self.z).scatter_(-1, top, 1.0)
        column, across, down, z = (
            tensor.gather(-1, top)
            for tensor in (self.products.times(corner), all_across, all_down, self.z)
        )
        at_top = (column - z * down) / others
        shared = self.z * ((at_top - across) / z)  # z sum(q)
        scale = (all_across + shared).scatter(-1, top, at_top)
        accurate = (scale.abs() > SMALLEST * shared.abs()) | (corner > 0)
        reliable = (accurate & (scale != 0)).all(-1) & (others[:, 0] > SMALLEST)
        return scale, all_down, reliable

    def label(self) -> Tensor:
        """y = (b + t z) / s, with t = <q, y>."""
        share = self.b / self.scale
        if self.form.sums_to_one:
            t = (1 - share.sum(-1, keepdim=True)) / self.pivot
        else:
            t = _dot(self.scale - self.down, share) / self.pivot
        return share + self.weight * t

    def adjoint(self, incoming: Tensor) -> Tensor:
        """nu with A^T nu = incoming, up to a constant where labels sum to one."""
        t = _dot(self.weight, incoming) / self.pivot
        if self.form.sums_to_one:
            return (incoming - t) / self.scale
        return (incoming + (self.scale - self.down) * t) / self.scale

    def stationary(self, label: Tensor, left: Tensor) -> Tensor:
        """The samples whose label can be trusted, given the residual that it leaves."""
        size = self.b.norm(dim=-1) + (self.scale * label).norm(dim=-1)
        # Asked this way round, what is not finite is not trusted.
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
