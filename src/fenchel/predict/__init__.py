"""Adapted predictions for a pile of images: written as they are made, compared with the source's."""

from __future__ import annotations

from fenchel.predict.classes import Labelled, labelled, read_classes
from fenchel.predict.images import ImageFiles, read_images
from fenchel.predict.interruption import interruptible
from fenchel.predict.run import Choices, Outcome, Run, first_look
from fenchel.predict.summary import Summary, summarised

__all__ = [
    "Choices",
    "ImageFiles",
    "Labelled",
    "Outcome",
    "Run",
    "Summary",
    "first_look",
    "interruptible",
    "labelled",
    "read_classes",
    "read_images",
    "summarised",
]
