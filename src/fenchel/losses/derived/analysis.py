"""Analyse a function of (logits, targets): the form of its output, and how the target enters it.

A function qualifies when its h-gradient is affine in y, that is when the differences
fn(h, y) - fn(h', y) are, in which terms in y alone cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from fenchel.losses.derived.implicit import probe_logits
from fenchel.losses.derived.reading import (
    NEARLY_ZERO,
    LossFunction,
    Output,
    Reading,
    Rule,
    UnsuitableLossError,
)

ROWS = 3
"""Samples in a probe; at a single score, (N, C) and (N, 1) are alike and both are summed."""


def read(function: LossFunction, classes: int, device: torch.device) -> Reading:
    """Find out what `function` is at `classes` scores, or refuse it with the reason."""
    for dtype in (torch.float64, torch.float32):
        try:
            output = _output_of(function, classes, dtype, device)
            if output is not None:
                break
        except UnsuitableLossError:
            raise
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            if dtype == torch.float32:
                raise UnsuitableLossError(
                    f"the function could not be evaluated on logits and soft targets of shape "
                    f"({ROWS}, {classes}): {error}. It must accept two float tensors of one shape; "
                    "if it is made for a fixed number of classes, pass classes=; if it wants the classes "
                    "on another axis, dim=."
                ) from error
    if output is None:
        raise UnsuitableLossError(
            "the function must return float32 or float64 for float32 logits; got a narrower type. "
            "Remove its conversion to half precision."
        )
    plain = Reading(function, output, Rule.AFFINE, 0.0, True)
    try:
        return _examined(plain, classes, dtype, device)
    except RuntimeError as error:
        if output is not Output.REDUCED:
            raise _failed(error) from error
    try:
        return _examined(replace(plain, batches=False), classes, dtype, device)
    except RuntimeError as error:
        raise _failed(error) from error


def _examined(plain: Reading, classes: int, dtype: torch.dtype, device: torch.device) -> Reading:
    probe = _Probe(plain, classes, dtype, device)
    probe.require_independent_samples()
    probe.require_dependence()
    probe.require_gradient()
    gap = probe.affinity_gap()
    return replace(
        plain, rule=probe.rule(), affinity_gap=gap, any_target=probe.accepts_any_target()
    )


def _failed(error: RuntimeError) -> UnsuitableLossError:
    return UnsuitableLossError(
        f"the function must be differentiable in both arguments and leave them unchanged; it failed "
        f"with: {error}. Write it with differentiable torch operations that are not in-place."
    )


def _output_of(
    function: LossFunction, classes: int, dtype: torch.dtype, device: torch.device
) -> Output | None:
    """The form of its output; None where it computes in a lower precision than `dtype`."""
    h = probe_logits(classes, rows=ROWS, dtype=dtype).to(device)
    y = h.flip(0).softmax(-1)
    given = h.clone(), y.clone()
    value = function(h, y)
    if not (torch.equal(h, given[0]) and torch.equal(y, given[1])):
        raise UnsuitableLossError(
            "the function must leave its arguments as they are; it changes them in-place. "
            "Write y = 2 * y rather than y.mul_(2)."
        )
    if not isinstance(value, Tensor):
        raise UnsuitableLossError(
            f"the function must return a tensor; got {type(value).__name__}. Write it with torch."
        )
    # A single class makes (N, C) and (N, 1) alike: both are summed over the last axis.
    shapes: dict[tuple[int, ...], Output] = {
        (ROWS, classes): Output.PER_SCORE,
        (ROWS, 1): Output.PER_SAMPLE,
    }
    shapes |= {(ROWS,): Output.PER_SAMPLE, (): Output.REDUCED}
    shape = tuple(value.shape)
    if shape not in shapes:
        raise UnsuitableLossError(
            f"for logits of shape ({ROWS}, {classes}) the function must return one value per sample "
            f"({ROWS},), one per score ({ROWS}, {classes}) or one per batch (); got {shape}."
        )
    if not bool(value.isfinite().all()):
        raise UnsuitableLossError(
            "the function is not finite on moderate logits with a soft target inside the simplex. "
            "Use torch.xlogy for y log y, and log_softmax rather than log(softmax)."
        )
    return shapes[shape] if value.dtype == dtype else None


class _Probe:
    """Measurements on a few fixed logits and targets."""

    def __init__(
        self, reading: Reading, classes: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.reading, self.dtype = reading, dtype
        logits = probe_logits(classes, rows=2 * ROWS, dtype=dtype).to(device)
        self.h, self.other = logits[:ROWS], logits[ROWS:]
        eye = torch.eye(classes, dtype=dtype, device=device)
        corners = [eye[0], eye[-1], eye[classes // 2]]
        inside = [row.softmax(-1) for row in (3 * self.h[0], self.other[1])]
        if classes == 1:
            inside = [eye[0] * 0.3, eye[0] * 0.7]
        self.corners = [corner.expand_as(self.h).clone() for corner in corners]
        self.inside = [point.expand_as(self.h).clone() for point in inside]
        self.zero = torch.zeros_like(self.h)
        self.tolerance = 1e-8 if dtype == torch.float64 else 1e-3

    def difference(self, y: Tensor) -> Tensor:
        """fn(h, y) - fn(h', y), in which terms in y alone cancel."""
        return self.reading(self.h, y) - self.reading(self.other, y)

    def require_gradient(self) -> None:
        with torch.enable_grad():
            value = self.reading(self.h.clone().requires_grad_(), self.inside[0])
        if not value.requires_grad:
            raise UnsuitableLossError(
                "the function's value must carry a gradient to the logits; this one has none. "
                "Remove no_grad(), detach(), argmax and conversions to numbers or arrays."
            )

    def require_independent_samples(self) -> None:
        together = self.reading(self.h, self.inside[0])
        alone = torch.cat(
            [self.reading(self.h[i : i + 1], self.inside[0][i : i + 1]) for i in range(ROWS)]
        )
        if not torch.allclose(together, alone, rtol=self.tolerance, atol=self.tolerance):
            raise UnsuitableLossError(
                "the loss of a sample must not depend on the other samples of the batch, but the "
                "function gives other values for single samples. Remove batch statistics and random "
                "draws."
            )

    def require_dependence(self) -> None:
        at_points = torch.stack([self.difference(y) for y in (*self.corners, *self.inside)])
        if not bool(at_points.isfinite().all()):
            raise UnsuitableLossError(
                "the function is not finite at one-hot labels. Use torch.xlogy for y log y."
            )
        scale = 1 + at_points.abs().max()
        if bool((at_points.abs() <= 1e-12 * scale).all()):
            raise UnsuitableLossError("the function ignores its logits: it cannot be adapted with.")
        spread = at_points.amax(0) - at_points.amin(0)
        if bool((spread <= 1e-10 * scale).all()):
            raise UnsuitableLossError(
                "the function ignores its target: its gradient is the same for every label, so no "
                "label makes a prediction stationary. Use the second argument (soft labels (N, C))."
            )

    def affinity_gap(self) -> float:
        """How far the h-gradient is from affine in y, relative; refused beyond rounding."""
        gap = max(
            self._gap(self.difference, first, second)
            for first in self.corners
            for second in self.inside
        )
        gap = max(gap, self._gap(self.difference, *self.inside))
        if gap > self.tolerance:
            raise UnsuitableLossError(
                f"the gradient of the loss is not affine in the target (gap {gap:.2g} between the "
                "loss at a mixture of two labels and the mixture of the losses), so it has no form "
                "f(h) - <y, g(h)>. Weight per-class losses linearly by y."
            )
        return gap

    def _gap(self, function: Callable[[Tensor], Tensor], first: Tensor, second: Tensor) -> float:
        a, b = function(first), function(second)
        mixed = function(0.3 * first + 0.7 * second)
        scale = 1 + torch.maximum(a.abs(), b.abs())
        return float(((mixed - 0.3 * a - 0.7 * b).abs() / scale).max())

    def rule(self) -> Rule:
        if not self._reaches_zero():
            return Rule.ON_SIMPLEX
        if self._slope_is_infinite():
            return Rule.INTERPOLATED
        points = [*self.corners, *self.inside]
        gaps = [self._gap(self._plain, points[i], points[i + 1]) for i in range(len(points) - 1)]
        affine = max(*gaps, self._gap_to_zero(self._plain)) <= self.tolerance
        return Rule.AFFINE if affine else Rule.GRADIENT_AFFINE

    def _reaches_zero(self) -> bool:
        """Whether f(h) = fn(h, 0) can be read off: some functions check that targets sum to one."""
        try:
            at_zero = self.reading(self.h, self.zero)
            return (
                bool(at_zero.isfinite().all())
                and self._gap_to_zero(self.difference) <= self.tolerance
            )
        except (ValueError, AssertionError):
            return False

    def _plain(self, y: Tensor) -> Tensor:
        return self.reading(self.h, y)

    def _gap_to_zero(self, function: Callable[[Tensor], Tensor]) -> float:
        gaps = [self._gap(function, self.zero, point) for point in (*self.corners, *self.inside)]
        return max(gap if gap == gap else float("inf") for gap in gaps)

    def _slope_is_infinite(self) -> bool:
        slopes = []
        for point in (NEARLY_ZERO, NEARLY_ZERO * 1e-6):
            y = torch.full_like(self.h, point).requires_grad_()
            with torch.enable_grad():
                value = self.reading(self.h, y).sum()
            slopes.append(torch.autograd.grad(value, y, materialize_grads=True)[0])
        near, nearer = slopes
        return not torch.allclose(near, nearer, rtol=1e-6, atol=1e-6)

    def accepts_any_target(self) -> bool:
        try:
            y = (2 * self.other).requires_grad_()
            with torch.enable_grad():
                h = self.h.clone().requires_grad_()
                value = self.reading(h, y).sum()
                gradient = torch.autograd.grad(value, h)[0]
        except (RuntimeError, ValueError, AssertionError):
            return False
        expected = self.affine_gradient(y)
        return torch.allclose(gradient, expected, rtol=self.tolerance, atol=10 * self.tolerance)

    def affine_gradient(self, y: Tensor) -> Tensor:
        """The h-gradient at `y` extrapolated from y = 0 and its neighbourhood inside [0, 1]."""
        size = y.detach().abs().amax(-1, keepdim=True) * y.shape[-1] * 2

        def gradient(target: Tensor) -> Tensor:
            h = self.h.clone().requires_grad_()
            with torch.enable_grad():
                value = self.reading(h, target.detach()).sum()
            return torch.autograd.grad(value, h)[0]

        centre = torch.full_like(y, 1 / y.shape[-1])
        base = gradient(centre)
        step = (y.detach() - centre) / size
        return base + size * (gradient(centre + step) - base)
