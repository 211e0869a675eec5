"""The methods, one file per method, and how one is made from a name.

A method of your own is a subclass of `fenchel.Method` under `@fenchel.register("name")`, here, in a plugin
file or behind an entry point of the group `fenchel.methods`.
"""

from __future__ import annotations

from fenchel.methods.descent import Descent
from fenchel.methods.importance import Fisher, fisher
from fenchel.methods.inside import EntropyMethod
from fenchel.methods.making import as_method, made_method, moves_parameters
from fenchel.names import import_submodules

import_submodules(__name__, __path__)

STANDARD_METHODS = ("source", "bn", "entropy", "hard", "soft", "robust", "memo", "conjugate")
"""The methods that every comparison here has, in the order in which tables show them."""
FIELD_METHODS = (
    "bn-alpha",
    "eta",
    "eata",
    "rdumb",
    "sar",
    "deyo",
    "roid",
    "cotta",
    "rotta",
    "lame",
    "t3a",
)
"""Further methods of the field, in the order in which lists show them."""

__all__ = [
    "FIELD_METHODS",
    "STANDARD_METHODS",
    "Descent",
    "EntropyMethod",
    "Fisher",
    "as_method",
    "fisher",
    "made_method",
    "moves_parameters",
]
