"""The paper: its tables and figures with their published numbers, to be run and compared with.

Everything specific to the paper is here; `bench` and `report` do not depend on it. Published numbers and
settings are data, one TOML file per table or figure in `tables/`.
"""

from fenchel.paper.preset import PRESETS, SCALES, Line, Preset, PublishedRun, Scale, SourceModel

__all__ = ["PRESETS", "SCALES", "Line", "Preset", "PublishedRun", "Scale", "SourceModel"]
