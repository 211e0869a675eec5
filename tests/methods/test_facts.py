"""What methods say of themselves: cost, paper, published settings."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import fenchel
from fenchel.adapters import METHODS
from fenchel.methods import FIELD_METHODS, STANDARD_METHODS

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"
EVERY = [*STANDARD_METHODS, *FIELD_METHODS, "protected"]


@pytest.mark.parametrize("name", EVERY)
def test_a_method_says_what_it_costs(name):
    cost = METHODS[name].cost
    assert cost.forward
    assert cost.backward
    assert (cost.backward != "0") == getattr(METHODS[name], "moves", True)


@pytest.mark.parametrize("name", FIELD_METHODS)
def test_the_page_shows_what_the_class_says(name):
    cost = METHODS[name].cost
    row = f"| `{name}` | {cost.forward} | {cost.backward} | {cost.memory} | "
    (line,) = (line for line in PAGE.read_text().splitlines() if line.startswith(row))
    venue = line.removeprefix(row).removesuffix(" |").rpartition(", ")[2]
    assert venue in METHODS[name].paper


@pytest.mark.parametrize("name", EVERY)
def test_preferred_and_published_settings_are_settings_of_adapt_or_options(name):
    known = {*inspect.signature(fenchel.adapt).parameters, *METHODS[name].options()}
    kind = METHODS[name]
    for settings in (kind.defaults, *kind.published.values()):
        assert set(settings) <= known
