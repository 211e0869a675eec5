"""Every table and figure of the paper, with its published hyper-parameters, as sweeps to run."""

from fenchel.bench.presets import corruptions, domains, figures, meta
from fenchel.bench.presets.base import PRESETS, SCALES, Line, Preset, Run, Scale, SourceModel

__all__ = [
    "PRESETS",
    "SCALES",
    "Line",
    "Preset",
    "Run",
    "Scale",
    "SourceModel",
    "corruptions",
    "domains",
    "figures",
    "meta",
]
