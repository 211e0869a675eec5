"""From any training loss, written as a PyTorch function, to its label and test-time objective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, final

import torch
from torch import Tensor

from fenchel.losses.analysis import read
from fenchel.losses.base import Loss
from fenchel.losses.direct import Form, find_form
from fenchel.losses.implicit import SingularLossError, implicit_label, plan_for, probe_logits
from fenchel.losses.labels import LabelSpace, OneOfMany, Signed
from fenchel.losses.parts import InParts
from fenchel.losses.probability import LogitPenaltyLoss, elementwise_derivative, has_float64
from fenchel.losses.reading import LossFunction, Reading, Rule, UnsuitableLossError
from fenchel.losses.study import Findings, Study
from fenchel.losses.system import DENSE_CLASSES, Plan

PROBED_CLASSES = (10, 1)
"""Where a function is judged when nobody says for how many classes it is made."""


def derive(
    fn: LossFunction | None = None,
    *,
    f: Callable[[Tensor], Tensor] | None = None,
    g: Callable[[Tensor], Tensor] | None = None,
    classes: int | None = None,
    labels: LabelSpace | None = None,
    name: str | None = None,
    device: torch.device | str = "cpu",
) -> DerivedLoss:
    """The loss object of a training loss written as `fn(logits, soft_targets)`, or as `f` and `g`.

    `fn` takes two float tensors (N, C) and returns one value a sample; a value a score is summed, and a
    function that reduces the batch is evaluated sample by sample. It qualifies when its gradient
    with respect to the logits is affine in the target; what does not qualify is refused with the
    reason. `derived.findings()` tells what was found.

    `classes`: for a function made for one number of classes (class weights, say). `labels`: the label
    space for pseudo-label baselines, one class out of C unless there is a single score.
    `device`: where the function's own tensors live.

    >>> def my_loss(h, y):
    ...     return -(y * h.log_softmax(-1)).sum(-1) + 6 * (1 - (y * h.softmax(-1)).sum(-1))
    >>> derive(my_loss).label(torch.tensor([2.0, 0.0, 0.0]))
    tensor([0.5142, 0.2429, 0.2429])
    """
    if (fn is None) == (f is None and g is None) or (f is None) != (g is None):
        raise TypeError("derive takes either one function of (logits, targets), or both f= and g=.")
    function = fn if fn is not None else _Pair(f=f, g=g)  # type: ignore[arg-type]
    title = name or getattr(function, "__name__", None) or type(function).__name__
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


@dataclass(frozen=True)
class _Pair:
    """The loss given by its two formulas."""

    f: Callable[[Tensor], Tensor]
    g: Callable[[Tensor], Tensor]

    def __call__(self, h: Tensor, y: Tensor) -> Tensor:
        return self.f(h) - (y * self.g(h)).sum(-1)


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

    def _plan(self, classes: int) -> Plan:
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
        h = probe_logits(classes).to(self.device)
        if self._flat_in_logits(h) or self._flat_objective(h):
            raise UnsuitableLossError(
                "the derived test-time objective has no gradient: it is constant in the logits (as "
                "for the mean absolute error or a hinge), so it would adapt nothing, silently. Adapt "
                "with another objective, such as Entropy()."
            )

    def _flat_in_logits(self, h: Tensor) -> bool:
        """Piecewise linear in the logits: then the label is piecewise constant."""
        y = h.flip(0).softmax(-1)
        with torch.enable_grad():
            point = _matching(self, h).requires_grad_()
            value = self.energy(point, y.to(point)).sum()
            (gradient,) = torch.autograd.grad(value, point, create_graph=True)
            if not gradient.requires_grad:
                return True
            probe = torch.ones_like(gradient) * torch.arange(1, h.shape[-1] + 1).to(gradient)
            (curvature,) = torch.autograd.grad(gradient, point, probe, materialize_grads=True)
        return bool((curvature.abs() <= 1e-9).all())

    def _flat_objective(self, h: Tensor) -> bool:
        with torch.enable_grad():
            point = _matching(self, h).requires_grad_()
            value = self.conjugate(point)
            (gradient,) = torch.autograd.grad(value.sum(), point, materialize_grads=True)
        size = 1e-8 if point.dtype == torch.float64 else 1e-4
        return bool((gradient.abs() <= size).all())


@final
@dataclass(frozen=True, kw_only=True)
class _TwoClassPenalty(LogitPenaltyLoss):
    """phi of a recognised loss, read off the function at two classes with logits (r, 0)."""

    name: ClassVar[str] = "recognised"
    loss: DerivedLoss

    def of_logit(self, r: Tensor) -> Tensor:
        pair = torch.stack([r, torch.zeros_like(r)], dim=-1)
        first = torch.zeros_like(pair)
        first[..., 0] = 1
        if self.loss.reading.rule is not Rule.GRADIENT_AFFINE:
            return self.loss._at(pair, first)
        return self.loss.f(pair) - (first * self.loss.g(pair)).sum(-1)


@lru_cache(maxsize=256)
def _study(loss: DerivedLoss, classes: int) -> Study:
    wide = _dtype(loss) == torch.float64
    recognised = wide and _is_true_class_loss(loss, classes)
    penalty = _TwoClassPenalty(loss=loss) if recognised else None
    form = None
    if wide and classes > DENSE_CLASSES:
        choices = (True,) if recognised else (False, True)
        form = find_form(loss.energy, probe_logits(classes).to(loss.device), choices)
    plan = loss._plan(classes) if form is None and not recognised else None
    return Study(classes, penalty, form, plan)


@lru_cache(maxsize=256)
def _dtype(loss: DerivedLoss) -> torch.dtype:
    """float64, unless the function's own tensors insist on float32."""
    h = probe_logits(loss.judged_at).to(loss.device)
    try:
        return loss.reading(h, h.softmax(-1)).dtype
    except RuntimeError:
        return torch.float32


def _matching(loss: DerivedLoss, h: Tensor) -> Tensor:
    return h.to(_dtype(loss)).clone()


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


def _is_true_class_loss(loss: DerivedLoss, classes: int) -> bool:
    """Whether L(h, e_k) is one decreasing function of z_k, at this number of classes and at two."""
    if classes < 2 or not isinstance(loss.label_space, OneOfMany):
        return False
    z = torch.tensor([0.01, 0.1, 0.4, 0.7, 0.97], dtype=torch.float64, device=loss.device)
    try:
        expected = _TwoClassPenalty(loss=loss).of_logit(z.logit())
        slope = elementwise_derivative(
            _TwoClassPenalty(loss=loss).of_logit,
            torch.linspace(-15, 15, 61, dtype=torch.float64, device=loss.device),
        )
    except (RuntimeError, ValueError, IndexError, TypeError):
        return False
    if not bool(expected.isfinite().all()) or not bool((slope < 0).all()):
        return False
    for true_class in {0, classes // 2, classes - 1}:
        h = _logits_with_probability(z, true_class, classes)
        value = loss._f(h) - loss._g(h)[:, true_class]
        if not torch.allclose(value, expected, rtol=1e-9, atol=1e-9):
            return False
    return True


def _logits_with_probability(z: Tensor, true_class: int, classes: int) -> Tensor:
    """Logits whose softmax is `z` at the true class and arbitrary elsewhere, shifted at will."""
    rest = probe_logits(classes, rows=len(z)).to(z).roll(true_class, 0)
    rest[:, true_class] = -torch.inf
    h = rest.log_softmax(-1) + torch.log1p(-z)[:, None]
    h[:, true_class] = z.log()
    return h + torch.linspace(-2, 2, len(z)).to(z)[:, None]
