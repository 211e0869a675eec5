"""From any training loss, written as a PyTorch function, to its label and test-time objective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, final

import torch
from torch import Tensor

from fenchel.losses.base import Loss
from fenchel.losses.derived.analysis import read
from fenchel.losses.derived.bounded import is_bounded
from fenchel.losses.derived.direct import Form, find_form
from fenchel.losses.derived.flat import is_flat
from fenchel.losses.derived.implicit import (
    SingularLossError,
    implicit_label,
    plan_for,
    probe_logits,
)
from fenchel.losses.derived.parts import InParts
from fenchel.losses.derived.reading import LossFunction, Reading, Rule, UnsuitableLossError
from fenchel.losses.derived.recognition import recognise
from fenchel.losses.derived.study import Findings, Study
from fenchel.losses.derived.system import DENSE_CLASSES, SolverPlan
from fenchel.losses.derived.written import Pair, on_axis
from fenchel.losses.labels import LabelSpace, OneOfMany, Signed
from fenchel.losses.probability import has_float64

PROBED_CLASSES = (10, 1)
"""The numbers of classes at which a function is tried, in this order, unless `classes` is given."""


def derive(
    fn: LossFunction | None = None,
    *,
    f: Callable[[Tensor], Tensor] | None = None,
    g: Callable[[Tensor], Tensor] | None = None,
    classes: int | None = None,
    labels: LabelSpace | None = None,
    name: str | None = None,
    device: torch.device | str = "cpu",
    dim: int = -1,
) -> DerivedLoss:
    """The loss object of a training loss written as `fn(logits, soft_targets)`, or as `f` and `g`.

    `fn` takes two float tensors (N, C) and returns one value per sample. One value per score is summed, and
    a function that reduces the batch is evaluated sample by sample. It qualifies when its gradient
    with respect to the logits is affine in the target; what does not qualify is refused with the
    reason. `derived.findings()` shows what was found.

    `classes`: for a function made for one number of classes (class weights, say). `labels`: the label
    space for pseudo-label baselines, one class out of C unless there is a single score.
    `device`: the device of the function's own tensors. `dim`: the axis on which the function wants the
    classes. It is called with (C, N) for dim=0, with (N, C, 1, 1) for dim=-3, with (N, 1, C) for dim=2.
    Every pixel of an image is a sample. The methods of the loss have a `dim` of their own.

    >>> def my_loss(h, y):
    ...     return -(y * h.log_softmax(-1)).sum(-1) + 6 * (1 - (y * h.softmax(-1)).sum(-1))
    >>> derive(my_loss).label(torch.tensor([2.0, 0.0, 0.0]))
    tensor([0.5142, 0.2429, 0.2429])
    """
    if (fn is None) == (f is None and g is None) or (f is None) != (g is None):
        raise TypeError("derive takes either one function of (logits, targets), or both f= and g=.")
    written = fn if fn is not None else Pair(f=f, g=g, dim=dim)  # type: ignore[arg-type]
    title = name or getattr(written, "__name__", None) or type(written).__name__
    function = on_axis(written, dim)
    device = torch.device(device)
    refusal: ValueError | None = None
    for count in (classes,) if classes is not None else PROBED_CLASSES:
        space = labels or (Signed() if count == 1 else OneOfMany())
        try:
            derived = DerivedLoss(
                function=function,
                reading=read(function, count, device),
                title=str(title),
                label_space=space,
                device=device,
                judged_at=count,
            )
            derived._require_gradient(count)
            return derived
        except (UnsuitableLossError, SingularLossError) as error:
            refusal = refusal or error
    if refusal is None:
        raise ValueError("classes must be a positive number.")
    raise refusal


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class DerivedLoss(Loss):
    """A loss of the same interface as the others, its label and objective derived from a function."""

    name: ClassVar[str] = "derived"
    function: LossFunction = field(hash=False)  # a callable object need not be hashable
    reading: Reading = field(compare=False)
    title: str
    label_space: LabelSpace
    device: torch.device
    judged_at: int

    @property
    def labels(self) -> LabelSpace:  # type: ignore[override]
        """The label space that was chosen for it."""
        return self.label_space

    @property
    def objective_is_bounded(self) -> bool:  # type: ignore[override]
        """Whether the objective has a lower bound, as far as growing logits can tell."""
        return _is_bounded(self)

    @property
    def spec(self) -> str:
        """Its title: a function has no spec that could rebuild it."""
        return f"derived:{self.title}"

    def __repr__(self) -> str:
        return f"DerivedLoss({self.title})"

    def findings(self, classes: int | None = None) -> Findings:
        """What was found at a number of classes, by default the one it was judged at."""
        return Findings.of(self.reading, _study(self, classes or self.judged_at))

    def f(self, h: Tensor) -> Tensor:
        return self._flat(self._f, h).reshape(h.shape[:-1])

    def g(self, h: Tensor) -> Tensor:
        return self._flat(self._g, h).reshape(h.shape)

    def energy(self, h: Tensor, y: Tensor) -> Tensor:
        """f(h) - <y, g(h)> for (N, C); where the function allows it, up to a term in y alone."""
        if self.reading.rule is not Rule.ON_SIMPLEX and self.reading.any_target:
            return self.reading(h, y)
        return self._f(h) - (y * self._g(h)).sum(-1)

    def _at(self, h: Tensor, y: Tensor) -> Tensor:
        classes = h.shape[-1]
        return self.reading(h.reshape(-1, classes), y.reshape(-1, classes)).reshape(h.shape[:-1])

    def _label(self, h: Tensor) -> Tensor:
        form = _study(self, h.shape[-1]).form
        if form is None or not has_float64(h):
            return self._undivided_label(h)
        return self._flat(self._in_parts(form).label, h).reshape(h.shape)

    def _conjugate(self, h: Tensor) -> Tensor:
        form = _study(self, h.shape[-1]).form
        if form is None or not has_float64(h):
            return self._undivided_conjugate(h)
        return self._flat(self._in_parts(form).objective, h).reshape(h.shape[:-1])

    def _in_parts(self, form: Form) -> InParts:
        return InParts(
            energy=self.energy,
            value=None if self.reading.rule is Rule.AFFINE else self._value,
            form=form,
            other_label=self._undivided_label,
            other_objective=self._undivided_conjugate,
        )

    def _value(self, h: Tensor, y: Tensor) -> Tensor:
        """f(h) - <y, g(h)> for (N, C), without any term in y alone."""
        return self._f(h) - (y * self._g(h)).sum(-1)

    def _at_corner(self, h: Tensor, y: Tensor) -> Tensor:
        """The loss at one-hot labels, (..., C), without any term in y alone."""
        if self.reading.rule is Rule.GRADIENT_AFFINE:
            return self.f(h) - (y * self.g(h)).sum(-1)
        return self._at(h, y)

    def _undivided_label(self, h: Tensor) -> Tensor:
        penalty = _study(self, h.shape[-1]).penalty
        if penalty is not None:
            return penalty.label(h)
        return implicit_label(self.energy, self._wide(h), self._plan(h.shape[-1])).to(h.dtype)

    def _undivided_conjugate(self, h: Tensor) -> Tensor:
        penalty = _study(self, h.shape[-1]).penalty
        if penalty is not None:
            return penalty.conjugate(h)
        wide = self._wide(h)
        label = implicit_label(self.energy, wide, self._plan(h.shape[-1]))
        return (self.f(wide) - (label * self.g(wide)).sum(-1)).to(h.dtype)

    def _plan(self, classes: int) -> SolverPlan:
        return plan_for(self.energy, classes, _dtype(self), self.device)

    def _wide(self, h: Tensor) -> Tensor:
        """float64 where there is one: f - <y, g> may cancel, and GMRES stalls on float32's rounding."""
        if _dtype(self) == torch.float32:
            return h.float()
        return h.double() if has_float64(h) else h

    def _flat(self, function: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
        return function(h.reshape(-1, h.shape[-1]))

    def _f(self, h: Tensor) -> Tensor:
        if self.reading.rule is Rule.ON_SIMPLEX:
            return h.sum(-1) * 0
        return self.reading(h, torch.zeros_like(h))

    def _g(self, h: Tensor) -> Tensor:
        """-dfn/dy at the base point; by interpolation, a constant makes it right at a reference."""
        slope, value = self._slope(h)
        if self.reading.rule in (Rule.AFFINE, Rule.GRADIENT_AFFINE):
            return -slope
        offset = _interpolation_offset(self, h.shape[-1]).to(h)
        if self.reading.rule is Rule.INTERPOLATED:
            return offset - slope
        return offset - (value[:, None] + slope - slope.mean(-1, keepdim=True))

    def _slope(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """dfn/dy and fn at the base point, both differentiable in h."""
        differentiable = torch.is_grad_enabled() and h.requires_grad
        with torch.enable_grad():
            y = self.reading.base_point(h).requires_grad_()
            value = self.reading(h, y)
            (slope,) = torch.autograd.grad(
                value.sum(), y, create_graph=differentiable, materialize_grads=True
            )
        return (slope, value) if differentiable else (slope.detach(), value.detach())

    def _require_gradient(self, classes: int) -> None:
        """Refuse a loss whose objective is flat: adapting with it would silently do nothing."""
        try:
            h = probe_logits(classes).to(self.device, _dtype(self))
            flat = is_flat(self.energy, self.conjugate, h)
        except RuntimeError as error:
            raise UnsuitableLossError(
                f"the function must be twice differentiable; its second derivative failed with: {error}. "
                "Write the operation that has none out with others."
            ) from error
        if flat:
            raise UnsuitableLossError(
                "the derived test-time objective has no gradient: it is constant in the logits (as "
                "for the mean absolute error or a hinge), so it would adapt nothing, silently. Adapt "
                "with another objective, such as Entropy()."
            )


@lru_cache(maxsize=256)
def _study(loss: DerivedLoss, classes: int) -> Study:
    wide = _dtype(loss) == torch.float64
    penalty = None
    if wide and isinstance(loss.label_space, OneOfMany):
        penalty = recognise(loss._at_corner, loss._value, classes, loss.device)
    form = None
    if wide and classes > DENSE_CLASSES:
        choices = (False, True) if penalty is None else (True,)
        form = find_form(loss.energy, probe_logits(classes).to(loss.device), choices)
    plan = loss._plan(classes) if form is None and penalty is None else None
    return Study(classes, penalty, form, plan)


@lru_cache(maxsize=256)
def _is_bounded(loss: DerivedLoss) -> bool:
    return is_bounded(loss, loss.judged_at, _dtype(loss), loss.device)


@lru_cache(maxsize=256)
def _dtype(loss: DerivedLoss) -> torch.dtype:
    """float64, unless the function's own tensors insist on float32."""
    h = probe_logits(loss.judged_at).to(loss.device)
    try:
        return loss.reading(h, h.softmax(-1)).dtype
    except RuntimeError:
        return torch.float32


@lru_cache(maxsize=256)
def _interpolation_offset(loss: DerivedLoss, classes: int) -> Tensor:
    """What makes the interpolated g exact: C evaluations at one reference, once."""
    h = probe_logits(classes, rows=1).to(loss.device, _dtype(loss))
    slope, value = loss._slope(h)
    at_corners = []
    for corners in torch.split(torch.eye(classes, dtype=h.dtype, device=h.device), 256):
        at_corners.append(loss.reading(h.expand_as(corners), corners))
    if loss.reading.rule is Rule.INTERPOLATED:
        return loss.reading(h, torch.zeros_like(h)) - torch.cat(at_corners) + slope[0]
    return -torch.cat(at_corners) + value + slope[0] - slope[0].mean()
