"""The figures of the guides are what the published results make of them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from fenchel.report.style import save

ROOT = Path(__file__).parents[2]


def test_the_figures_are_byte_for_byte_what_the_results_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "website"))
    figures = importlib.import_module("figures")
    for name, draw in figures.DRAWN.items():
        save(draw(), tmp_path / name)
        drawn = (ROOT / "docs" / "figures" / name).read_bytes()
        assert drawn == (tmp_path / name).read_bytes(), f"run `python website/figures.py`: {name}"
    sys.modules.pop("figures")
