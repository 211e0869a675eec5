"""The examples in docstrings show what really comes out."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import fenchel

pytestmark = pytest.mark.usefixtures("own_names")
SOURCE = Path(fenchel.__file__).parent
MODULES = sorted(
    ".".join(("fenchel", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if ">>>" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name: str) -> None:
    module = importlib.import_module(name)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    found = doctest.testmod(module, optionflags=flags)
    assert found.failed == 0
    assert found.attempted > 0
