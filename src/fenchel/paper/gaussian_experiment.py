"""The appendix experiment: a linear classifier follows two Gaussian clusters that drift.

A linear model is trained with the exponential loss on the source clusters, then adapted to the
shifted ones by the conjugate objective, by hard labels and by the entropy of the sigmoid. The paper
gives the dimension, the three shifts and the losses; everything else is chosen in
`GaussianSettings`, and an outcome carries its settings.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fenchel._version import __version__
from fenchel.adapters import SGD, online
from fenchel.api import adapt
from fenchel.bench.running import one_thread
from fenchel.data import Dataset, load
from fenchel.losses import ExponentialLoss
from fenchel.models import build
from fenchel.names import unknown

LOSS = ExponentialLoss()
Accuracies = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class GaussianSettings:
    """Every choice of the experiment. The first four are the paper's, the others are ours.

    Attributes:
        shifts: lambda, how far the clusters have moved from source (0) to target (1).
        methods: conjugate, hard (the sign of the score, no threshold), entropy (of the sigmoid).
        dimension: the dimension of the clusters.
        parameters: which are updated; the linear model has one weight per dimension, and an offset.
        draws: how often means, covariances and points are drawn anew.
        samples: source points, and as many shifted ones.
        low_variance, high_variance: the range of the diagonal entries, uniform.
        training_steps, training_rate: the source is trained by full-batch SGD from zero weights.
        iterations, learning_rate: adaptation takes full-batch SGD steps on the shifted points.
        momentum: Nesterov's, for training and adaptation.
        first_seed: draw k has the seed first_seed + k.
    """

    shifts: tuple[float, ...] = (0.6, 0.65, 0.7)
    methods: tuple[str, ...] = ("conjugate", "hard", "entropy")
    dimension: int = 100
    parameters: str = "all"
    draws: int = 10
    samples: int = 10_000
    low_variance: float = 1.0
    high_variance: float = 5.0
    training_steps: int = 100
    training_rate: float = 0.01
    iterations: int = 50
    learning_rate: float = 0.02
    momentum: float = 0.9
    first_seed: int = 0

    def __post_init__(self) -> None:
        for name in ("draws", "samples", "training_steps", "iterations"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} of the Gaussians must be at least 1; got {getattr(self, name)}. Raise it."
                )


@dataclass(frozen=True)
class GaussianOutcome:
    """Accuracies in percent by (shift, method), each (draws, 1 + iterations); first the source's."""

    settings: GaussianSettings
    accuracies: dict[tuple[float, str], Accuracies]
    source_accuracies: tuple[float, ...]
    """Accuracies on the source points themselves, one per draw."""
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Settings, versions and every curve as plain values."""
        curves = [
            {"shift": shift, "method": method, "accuracies": values.round(4).tolist()}
            for (shift, method), values in self.accuracies.items()
        ]
        return {
            "settings": dataclasses.asdict(self.settings),
            "loss": LOSS.spec,
            "versions": {"fenchel": __version__, "torch": torch.__version__},
            "source_accuracies": list(self.source_accuracies),
            "curves": curves,
            "seconds": round(self.seconds, 1),
        }


def run_gaussians(
    settings: GaussianSettings, advance: Callable[[], None] = lambda: None
) -> GaussianOutcome:
    """Train and adapt for every draw; `advance` is called after each adaptation.

    >>> small = GaussianSettings(draws=2, samples=200, dimension=5, iterations=3)
    >>> run_gaussians(small).accuracies[0.6, "conjugate"].shape
    (2, 4)
    """
    started = time.monotonic()
    curves: dict[tuple[float, str], list[list[float]]] = {}
    source_accuracies = []
    with one_thread():
        for draw in range(settings.draws):
            seed = settings.first_seed + draw
            model, accuracy = _source_model(settings, seed)
            source_accuracies.append(accuracy)
            for shift in settings.shifts:
                points, labels = _points(settings, seed, shift)
                for method in settings.methods:
                    curve = _accuracy_curve(settings, model, method, points, labels)
                    curves.setdefault((shift, method), []).append(curve)
                    advance()
    accuracies = {key: np.array(runs) for key, runs in curves.items()}
    seconds = time.monotonic() - started
    return GaussianOutcome(settings, accuracies, tuple(source_accuracies), seconds)


def _points(settings: GaussianSettings, seed: int, shift: float) -> tuple[Tensor, Tensor]:
    """Points (samples, dimension) and their signs (samples, 1), source ones for shift 0."""
    drawn: Dataset = load(
        "gaussians",
        split="test" if shift else "train",
        shift=shift,
        samples=settings.samples,
        dimension=settings.dimension,
        low_variance=settings.low_variance,
        high_variance=settings.high_variance,
        seed=seed,
    )
    points = torch.from_numpy(drawn.read(np.arange(len(drawn))))
    signs = torch.from_numpy(2.0 * drawn.labels - 1.0).to(points.dtype)
    return points, signs[:, None]


def _source_model(settings: GaussianSettings, seed: int) -> tuple[nn.Module, float]:
    """The trained linear model and its accuracy on the points it was trained on."""
    points, signs = _points(settings, seed, 0.0)
    model = build("linear", features=settings.dimension)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=settings.training_rate, momentum=settings.momentum, nesterov=True
    )
    for _ in range(settings.training_steps):
        optimizer.zero_grad()
        LOSS(model(points), signs).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        return model, _accuracy(model(points), signs)


def _accuracy_curve(
    settings: GaussianSettings, model: nn.Module, method: str, points: Tensor, signs: Tensor
) -> list[float]:
    """The accuracy of the source, then after every step on all points at once."""
    adapted = adapt(
        model,
        trained_with=LOSS,
        method=method,
        optimizer=SGD(learning_rate=settings.learning_rate, momentum=settings.momentum),
        parameters=settings.parameters,
        protect=False,
    )
    with torch.no_grad():
        curve = [_accuracy(model(points), signs)]
    again_and_again = repeat(points, settings.iterations)
    curve += [_accuracy(scores, signs) for _, scores in online(adapted, again_and_again)]
    return curve


def _accuracy(scores: Tensor, signs: Tensor) -> float:
    return 100 * float(((scores > 0) == (signs > 0)).double().mean())


_SAMPLES = {"full": 10_000, "cpu": 10_000, "smoke": 500}


def gaussian_settings(scale: str) -> GaussianSettings:
    """Ten draws at every scale; `smoke` draws fewer points."""
    if scale not in _SAMPLES:
        raise unknown("scale", scale, _SAMPLES)
    return dataclasses.replace(GaussianSettings(), samples=_SAMPLES[scale])
