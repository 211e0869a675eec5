"""Which simple formula explains a learned objective: a scaled entropy, or a quadratic.

    entropy     alpha H(softmax(h / T)) - C         three parameters
    quadratic   sum_i (A h_i^2 + C)                 two parameters

Both are fitted by least squares over logits. Given T, all else is linear, and T is found by a line search.

A learned objective may prefer some classes to others. This part is linear in the logits, and neither
formula can express it. So each formula is judged twice. `r_squared` is the share of the whole variance
that it explains. `beyond_linear` is the share that it explains of what no linear function does; linear
functions are projected out of both sides first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from fenchel.files import write_atomically
from fenchel.losses import CrossEntropy
from fenchel.objectives import Objective, Quadratic, ScaledEntropy

FILE_NAME = "fit.json"
TEMPERATURES = (1e-2, 1e2)
"""At higher temperatures the entropy is a quadratic of the centred logits, up to rounding."""
COARSE = 121
"""Temperatures on a logarithmic grid, the best of which is then refined."""

Column = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """A formula fitted to values: the fitted objective, and how well it explains the values.

    Attributes:
        objective: `ScaledEntropy` or `Quadratic`; `fenchel.adapt(objective=...)` takes it.
        r_squared: the share of the variance that it explains.
        aic: Akaike's criterion under Gaussian residuals, n log(RSS / n) + 2 (parameters + 1).
        parameters: the number of fitted parameters.
        beyond_linear: the share that it explains of what a linear function of the logits leaves; its
            parameters are fitted anew for this.
    """

    objective: Objective
    r_squared: float
    aic: float
    parameters: int
    beyond_linear: float


@dataclass(frozen=True)
class Fits:
    """Both fits to one learned objective, and the logits that they were made on.

    Attributes:
        linear: the share of the variance that a linear function of the logits explains.
        samples: the number of logit vectors.
        low, high: the range of all their entries.
        resting: their mean, (classes,): where logits stay while one of them moves.
    """

    entropy: Fit
    quadratic: Fit
    linear: float
    samples: int
    low: float
    high: float
    resting: tuple[float, ...]

    @property
    def better(self) -> str:
        """The name of the formula with the lower AIC."""
        return "entropy" if self.entropy.aic < self.quadratic.aic else "quadratic"

    def by_name(self) -> dict[str, Fit]:
        """Both fits."""
        return {"entropy": self.entropy, "quadratic": self.quadratic}

    def record(self) -> dict[str, Any]:
        """Plain facts, from which `from_record` rebuilds the fits."""
        entropy, quadratic = self.entropy.objective, self.quadratic.objective
        assert isinstance(entropy, ScaledEntropy)
        assert isinstance(quadratic, Quadratic)
        return {
            "better": self.better,
            "samples": self.samples,
            "range": [self.low, self.high],
            "resting": list(self.resting),
            "linear": {"r_squared": self.linear},
            "entropy": {
                "formula": "alpha * H(softmax(h / T)) - C",
                "alpha": entropy.alpha,
                "T": entropy.temperature,
                "C": entropy.offset,
                **_quality(self.entropy),
            },
            "quadratic": {
                "formula": "sum_i (A * h_i^2 + C)",
                "A": quadratic.a,
                "C": quadratic.offset,
                **_quality(self.quadratic),
            },
        }

    def write(self, path: Path) -> None:
        """The record as a JSON file, whole or not at all."""
        write_atomically(path, (json.dumps(self.record(), indent=2) + "\n").encode())

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> Fits:
        """The inverse of `record`."""
        try:
            entropy, quadratic = record["entropy"], record["quadratic"]
            made = ScaledEntropy(
                alpha=entropy["alpha"], offset=entropy["C"], temperature=entropy["T"]
            )
            low, high = record["range"]
            flat = Quadratic(a=quadratic["A"], offset=quadratic["C"])
            return Fits(
                Fit(made, entropy["r_squared"], entropy["aic"], 3, entropy["beyond_linear"]),
                Fit(flat, quadratic["r_squared"], quadratic["aic"], 2, quadratic["beyond_linear"]),
                record["linear"]["r_squared"],
                record["samples"],
                low,
                high,
                tuple(record["resting"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                "fits are read from what `fenchel meta fit` wrote; this holds something else "
                f"({type(error).__name__}: {error}). Run `fenchel meta fit` again."
            ) from error


def fit(objective: Objective, logits: Tensor) -> Fits:
    """Fit both formulas to the objective's values at `logits` (N, C).

    >>> truth = ScaledEntropy(alpha=2.0, offset=1.0, temperature=3.0)
    >>> found = fit(truth, 5 * torch.randn(200, 4))
    >>> found.better, round(found.entropy.objective.temperature, 3)
    ('entropy', 3.0)
    """
    if logits.ndim != 2 or len(logits) < 5 or not bool(logits.isfinite().all()):
        raise ValueError(
            "a fit needs finite logits of at least 5 samples, shape (samples, classes); got shape "
            f"{tuple(logits.shape)}. Pass more images."
        )
    with torch.no_grad():
        h = logits.detach().cpu().double()
        values = objective(h).numpy()
    if not np.ptp(values) > 0:
        raise ValueError(
            f"a fit needs an objective that varies over the logits; this one is {values[0]:g} "
            "everywhere. Learn it for longer."
        )
    rest = _Rest(h.numpy(), values)
    return Fits(
        _fit_entropy(h, values, rest),
        _fit_quadratic(h, values, rest),
        rest.linear,
        len(h),
        h.min().item(),
        h.max().item(),
        tuple(h.mean(0).tolist()),
    )


class _Rest:
    """What linear functions of the logits leave of the values, and of the columns of a formula."""

    def __init__(self, h: Column, values: Column) -> None:
        self.basis = np.linalg.qr(np.column_stack([np.ones(len(h)), h]))[0]
        self.values = self.of(values)
        self.total = float(self.values @ self.values)
        self.linear = 1 - self.total / _variation(values)

    def of(self, column: Column) -> Column:
        left: Column = column - self.basis @ (self.basis.T @ column)
        return left

    def explained(self, column: Column) -> float:
        """The share of what is left that a multiple of `column` explains; 1 if nothing is left."""
        residual, _ = _least_squares(self.of(column), self.values)
        return 1 - residual / self.total if self.total > 0 else 1.0


def _fit_entropy(h: Tensor, values: Column, rest: _Rest) -> Fit:
    def column(log_temperature: float) -> Column:
        entropies: Column = CrossEntropy().conjugate(h / np.exp(log_temperature)).numpy()
        return entropies

    place = _lowest(lambda place: _least_squares(column(place), values)[0])
    residual, (alpha, offset) = _least_squares(column(place), values)
    made = ScaledEntropy(
        alpha=float(alpha), offset=-float(offset), temperature=float(np.exp(place))
    )
    beyond = rest.explained(column(_lowest(lambda place: -rest.explained(column(place)))))
    return _judged(made, residual, values, beyond, parameters=3)


def _lowest(cost: Callable[[float], float]) -> float:
    """The logarithm of the temperature of the lowest cost: the best on a grid, refined."""
    first, last = np.log(TEMPERATURES)
    grid = np.linspace(first, last, COARSE)
    best = int(np.argmin([cost(place) for place in grid]))
    around = (grid[max(0, best - 1)], grid[min(COARSE - 1, best + 1)])
    found = minimize_scalar(cost, bounds=around, method="bounded", options={"xatol": 1e-10})
    return float(found.x) if found.fun <= cost(grid[best]) else float(grid[best])


def _fit_quadratic(h: Tensor, values: Column, rest: _Rest) -> Fit:
    squares = h.square().sum(-1).numpy()
    residual, (a, offset) = _least_squares(squares, values)
    made = Quadratic(a=float(a), offset=float(offset) / h.shape[-1])
    return _judged(made, residual, values, rest.explained(squares), parameters=2)


def _least_squares(column: Column, values: Column) -> tuple[float, Column]:
    """The residual sum of squares of values = slope * column + constant, and the two."""
    centred = column - column.mean()
    spread = float(centred @ centred)
    slope = float(centred @ values) / spread if spread > 0 else 0.0
    constant = float(values.mean() - slope * column.mean())
    residual = values - slope * column - constant
    return float(residual @ residual), np.array([slope, constant])


def _variation(values: Column) -> float:
    return float(((values - values.mean()) ** 2).sum())


def _judged(
    made: Objective, residual: float, values: Column, beyond_linear: float, *, parameters: int
) -> Fit:
    count = len(values)
    # An exact fit leaves rounding alone, and its logarithm must stay finite.
    least = count * (np.finfo(np.float64).eps * float(np.abs(values).max())) ** 2
    aic = count * float(np.log(max(residual, least) / count)) + 2 * (parameters + 1)
    return Fit(made, 1 - residual / _variation(values), aic, parameters, beyond_linear)


def _quality(found: Fit) -> dict[str, float]:
    return {
        "r_squared": found.r_squared,
        "aic": found.aic,
        "beyond_linear": found.beyond_linear,
    }
