"""Data sets, corruptions and streams.

>>> from fenchel.data import load
>>> load("gaussians", shift=0.7, samples=4).classes
('-1', '+1')
"""

from fenchel.data.base import Dataset, from_arrays
from fenchel.data.batch import Batch
from fenchel.data.registry import DATASETS, DatasetEntry, load, register_all
from fenchel.data.shifts import as_digits, corrupted
from fenchel.data.stream import Shift, Stream, corruption_shifts, shift_to
from fenchel.fetching.home import home

register_all()

__all__ = [
    "DATASETS",
    "Batch",
    "Dataset",
    "DatasetEntry",
    "Shift",
    "Stream",
    "as_digits",
    "corrupted",
    "corruption_shifts",
    "from_arrays",
    "home",
    "load",
    "shift_to",
]
