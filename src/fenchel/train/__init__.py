"""Training of source models."""

from fenchel.train.augmentation import AUGMENTATIONS, Augmentation
from fenchel.train.evaluation import evaluate
from fenchel.train.recipe import PRESETS, Recipe, preset, preset_for
from fenchel.train.run import Result, TrainingRun
from fenchel.train.source import train

__all__ = [
    "AUGMENTATIONS",
    "PRESETS",
    "Augmentation",
    "Recipe",
    "Result",
    "TrainingRun",
    "evaluate",
    "preset",
    "preset_for",
    "train",
]
