"""Every notebook runs, at a small size; what is kept in it came from its own code."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from documented_text import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "website"))
    yield importlib.import_module("run_notebooks")
    sys.modules.pop("run_notebooks")


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return found


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) == 4


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::fenchel.AdaptationWarning")  # small batches
def test_a_notebook_runs_at_a_small_size(path: Path, runner: Any, workplace: Path) -> None:
    threads = torch.get_num_threads()
    try:
        notebook = runner.read(path)
        runner.run(notebook, small=True)
    finally:
        torch.set_num_threads(threads)
    kept = [[kind_of(output) for output in cell.get("outputs", ())] for cell in cells(path)]
    made = [[kind_of(output) for output in cell.get("outputs", ())] for cell in notebook["cells"]]
    assert made == kept, f"run `make notebooks`: {path.name} has other outputs than its code makes"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_printed_and_drew(path: Path) -> None:
    kinds = {kind_of(output) for cell in cells(path) for output in cell.get("outputs", ())}
    assert kinds == {"stdout", "image/png"}


def kind_of(output: dict[str, Any]) -> str:
    return str(output.get("name", "image/png"))
