"""Whether a test-time objective has a lower bound, found out at growing logits."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from fenchel.losses.base import Loss
from fenchel.losses.derived.implicit import probe_logits

SIZES = tuple(4.0**power for power in range(-1, 8))
"""The sizes of the logits. At the largest, 16,384, even the entropy of h / T has settled (T up to 100s)."""
FEWEST = 6
"""The fewest sizes before an overflow, that is up to 256, that allow a judgement."""
STEPS = 3
"""The number of falls in a row that count as a trend."""
NOT_SLOWER = 0.9
"""Least ratio of a fall to the one before: 1 for a logarithm, a quarter for 1 / size."""
CONSIDERABLE = 0.01
"""The least fall that counts, relative to the objective at small logits."""


def is_bounded(loss: Loss, classes: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the objective has a lower bound, as far as growing logits tell; True if they do not."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # about logits far beyond those of any network
        try:
            return not _keeps_falling(loss, classes, dtype, device)
        except Exception:  # a function that fails at such logits cannot be judged by them
            return True


def _keeps_falling(loss: Loss, classes: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the objective falls on and on along some direction of the logits."""
    directions = _directions(classes).to(device, dtype)
    sizes = torch.tensor(SIZES, dtype=dtype, device=device)
    values = _values(loss, directions[:, None] * sizes[:, None])
    considerable = CONSIDERABLE * values[:, :2].abs().amax()
    return any(_falls(along, considerable) for along in values)


def _directions(classes: int) -> Tensor:
    corner = torch.eye(classes, dtype=torch.float64)[:1]
    ones = torch.ones_like(corner)
    return torch.cat([probe_logits(classes), corner, -corner, ones, -ones])


def _values(loss: Loss, h: Tensor) -> Tensor:
    """The objective; zero where it is lost in the rounding of f(h) - <y, g(h)>, which is no trend."""
    f, pairing = loss.f(h), loss.label(h) * loss.g(h)
    value = f - pairing.sum(-1)
    terms = f.abs() + pairing.abs().sum(-1)
    return value.masked_fill(value.abs() <= torch.finfo(h.dtype).eps ** 0.4 * terms, 0.0)


def _falls(values: Tensor, considerable: Tensor) -> bool:
    """Whether the last of these values, up to an overflow, fall, and no slower from one to the next."""
    overflows = (~values.isfinite()).nonzero()
    finite = values[: int(overflows[0])] if len(overflows) else values
    if len(finite) < FEWEST:
        return False
    falls = -finite[-STEPS - 1 :].diff()
    return bool((falls > considerable).all() and (falls[1:] > NOT_SLOWER * falls[:-1]).all())
