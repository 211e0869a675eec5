"""The examples in docstrings show what really comes out."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import fenchel

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(fenchel.__path__, "fenchel.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name: str) -> None:
    module = importlib.import_module(name)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.testmod(module, optionflags=flags).failed == 0
