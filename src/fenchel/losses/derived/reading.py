"""A loss given as a plain function, evaluated sample by sample.

    fn(h, y) = f(h) - <y, g(h)> + t(y)

The term t(y) does not train, but it would change the test-time objective, so the rule that separates
it is fixed here and reported.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

LossFunction = Callable[[Tensor, Tensor], Tensor]
NEARLY_ZERO = 1e-30
"""Stands for y = 0 in derivatives: y * sqrt(y) has slope 0 there, but autograd says 0 * inf."""


class Output(Enum):
    """What the function returns for a batch of N samples."""

    PER_SAMPLE = "one value per sample"
    PER_SCORE = "one value per score, summed over the last axis"
    REDUCED = "one value per batch, evaluated sample by sample"


class Rule(Enum):
    """How f and g were read off the function."""

    AFFINE = "affine in the target: used as it stands"
    GRADIENT_AFFINE = "only its gradient is affine in the target: terms in the target alone dropped"
    INTERPOLATED = (
        "only its gradient is affine in the target and its slope at y = 0 is infinite: "
        "interpolated between y = 0 and the one-hot labels"
    )
    ON_SIMPLEX = "defined for labels that sum to one only: interpolated between the one-hot labels"


class UnsuitableLossError(ValueError):
    """The function has no test-time objective of this kind; the message says why."""


@dataclass(frozen=True)
class Reading:
    """The function, evaluated per sample, and the rule by which f and g follow from it."""

    function: LossFunction
    output: Output
    rule: Rule
    affinity_gap: float
    any_target: bool
    """Whether it may be evaluated at labels outside the simplex (some functions refuse)."""
    batches: bool = True
    """Whether vmap can follow a reduced function (not one that branches on its values)."""

    def __call__(self, h: Tensor, y: Tensor) -> Tensor:
        """The loss of every sample: (N, C), (N, C) -> (N,)."""
        if self.output is Output.PER_SAMPLE:
            return self.function(h, y).reshape(h.shape[0])
        if self.output is Output.PER_SCORE:
            return self.function(h, y).sum(-1)
        if not self.batches:
            return torch.stack([self.function(a[None], b[None]) for a, b in zip(h, y, strict=True)])
        with warnings.catch_warnings():
            # Some operations have no batching rule: slower, and nothing that a user could mend.
            warnings.filterwarnings("ignore", message=".*performance drop.*")
            return torch.func.vmap(lambda a, b: self.function(a[None], b[None]))(h, y)

    def base_point(self, h: Tensor) -> Tensor:
        """Where the derivative with respect to the target is taken."""
        if self.rule in (Rule.AFFINE, Rule.GRADIENT_AFFINE):
            return torch.full_like(h, NEARLY_ZERO)
        return torch.full_like(h, 1 / h.shape[-1])
