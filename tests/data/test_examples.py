"""The examples in the docstrings run."""

import doctest
import importlib
import pkgutil
from pathlib import Path

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


def test_the_documentation_names_every_data_set_and_option():
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
    for name, entry in fenchel.data.DATASETS.items():
        assert f"`{name}`" in page
        for option in entry.options:
            assert f"`{option}`" in page, (name, option)
