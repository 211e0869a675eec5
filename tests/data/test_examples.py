"""The examples in the docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

import fenchel.data

MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(fenchel.data.__path__, "fenchel.data.")
    if ".corruptions" not in name
]


@pytest.mark.parametrize("name", ["fenchel.data", *MODULES])
def test_docstring_examples_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples_to_run():
    tries = sum(doctest.testmod(importlib.import_module(name)).attempted for name in MODULES)
    assert tries > 8
