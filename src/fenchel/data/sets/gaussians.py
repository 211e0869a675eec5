"""Two Gaussian clusters in 100 dimensions that drift: the synthetic data of the paper's appendix.

For each class c in {-1, +1}, source and target parameters are drawn once per seed:

    mu_s ~ N(0, I)   mu_t ~ N(1, I)   Sigma = U diag(d) U^T,  d_i uniform, U a random rotation

and the data at shift lambda are N(lambda mu_t + (1 - lambda) mu_s, lambda Sigma_t + (1 - lambda)
Sigma_s). The paper leaves the range of d open. The work it follows used 0.05 to 0.1, where a shift
either does nothing or everything, depending on the seed; the default of 1 to 5 degrades gradually.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fenchel.data.base import Dataset, from_arrays
from fenchel.data.registry import DATASETS, DatasetEntry
from fenchel.names import unknown

Array = npt.NDArray[np.float64]
SHIFTS = {"easy": 0.6, "moderate": 0.65, "hard": 0.7}
CLASSES = ("-1", "+1")
SOURCE_MEAN, TARGET_MEAN = 0.0, 1.0
OPTIONS = {
    "shift": "lambda in [0, 1], or easy (0.6), moderate (0.65), hard (0.7); default 0, the source",
    "samples": "number of samples, half of each class (default 2000)",
    "dimension": "default 100",
    "low_variance": "lower end of the variances (default 1)",
    "high_variance": "upper end of the variances (default 5)",
    "seed": "seed of parameters and samples (default 0)",
}


def _read(
    split: str,
    root: Path | None,
    *,
    shift: float | str = 0.0,
    samples: int = 2000,
    dimension: int = 100,
    low_variance: float = 1.0,
    high_variance: float = 5.0,
    seed: int = 0,
) -> Dataset:
    if isinstance(shift, str):
        if shift not in SHIFTS:
            raise unknown("shift of the Gaussians", shift, SHIFTS)
        shift = SHIFTS[shift]
    if not 0 <= shift <= 1:
        raise ValueError(f"shift must lie in [0, 1]; got {shift}.")
    if samples < 2 or dimension < 1:
        raise ValueError(f"need 2 samples and 1 dimension at least; got {samples}, {dimension}.")
    if not 0 < low_variance <= high_variance:
        raise ValueError(
            f"variances must be positive, low to high; got {low_variance}, {high_variance}."
        )
    parameters = np.random.default_rng(np.random.SeedSequence((seed, 0)))
    mixed = [
        _between(*_cluster_pair(parameters, dimension, low_variance, high_variance), shift)
        for _ in CLASSES
    ]
    # The part of the seed that tells train from test and one shift from another.
    stream = (seed, 1, 0 if split == "train" else 1, round(shift * 1_000_000))
    random = np.random.default_rng(np.random.SeedSequence(stream))
    labels = random.permutation(np.arange(samples) % 2)
    noise = random.standard_normal((samples, dimension))
    inputs = np.empty((samples, dimension), np.float32)
    for label, (mean, covariance) in enumerate(mixed):
        chosen = labels == label
        inputs[chosen] = mean + noise[chosen] @ np.linalg.cholesky(covariance).T
    return from_arrays(
        "gaussians",
        inputs,
        labels,
        classes=CLASSES,
        split=split,
        origin=f"drawn with shift {shift:g}, variances {low_variance:g} to {high_variance:g}, "
        f"seed {seed}",
    )


def _cluster_pair(
    random: np.random.Generator, dimension: int, low: float, high: float
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """(mean, covariance) of one class at the source and at the target."""
    pair = []
    for centre in (SOURCE_MEAN, TARGET_MEAN):
        mean = random.normal(centre, 1.0, dimension)
        axes = _rotation(random, dimension)
        pair.append((mean, (axes * random.uniform(low, high, dimension)) @ axes.T))
    return pair[0], pair[1]


def _rotation(random: np.random.Generator, dimension: int) -> Array:
    """A rotation from the Haar measure: the QR of a Gaussian matrix, signs and determinant fixed."""
    orthogonal, upper = np.linalg.qr(random.standard_normal((dimension, dimension)))
    rotation: Array = orthogonal * np.sign(np.diag(upper))
    if np.linalg.det(rotation) < 0:
        rotation[:, 0] *= -1
    return rotation


def _between(
    source: tuple[Array, Array], target: tuple[Array, Array], shift: float
) -> tuple[Array, Array]:
    mean, covariance = ((1 - shift) * s + shift * t for s, t in zip(source, target, strict=True))
    return mean, covariance


def _write_example(folder: Path) -> Mapping[str, Any]:
    return {"samples": 8, "shift": "easy"}


DATASETS.add(
    "gaussians",
    DatasetEntry(
        what="two drifting Gaussian clusters in 100 dimensions (synthetic)",
        splits=("test", "train"),
        read=_read,
        is_present=lambda folder: True,
        write_example=_write_example,
        provider="synthetic",
        by_hand="Nothing to get: it is drawn on demand.",
        options=OPTIONS,
    ),
)
