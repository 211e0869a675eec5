"""Figures that are no sweep over data sets."""

from __future__ import annotations

from dataclasses import replace

from fenchel.bench.gaussians import GaussianSettings
from fenchel.bench.presets.base import SCALES, Preset, add
from fenchel.names import unknown

GAUSSIANS = "fig-gaussian"

add(
    Preset(
        name=GAUSSIANS,
        about="accuracy of a linear classifier on drifting Gaussians, exponential loss",
        notes=(
            "The paper gives 100 dimensions, the three shifts and the losses; points, variances, steps, "
            "rates and the number of draws are our choice and are written beside the figure.",
        ),
        figure="gaussians",
    )
)

_SAMPLES = {"full": 10_000, "cpu": 10_000, "smoke": 500}


def gaussian_settings(scale: str) -> GaussianSettings:
    """Ten draws at every scale; `smoke` draws fewer points."""
    if scale not in _SAMPLES:
        raise unknown("scale", scale, SCALES)
    return replace(GaussianSettings(), samples=_SAMPLES[scale])
