"""The code in the documentation is real: the Python blocks of a page run, in their order."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
from documented_text import PAGES, blocks, name_of

import fenchel
from fenchel import train
from fenchel.bench.plan import make_plan
from fenchel.bench.sweep_file import read_sweep
from fenchel.train import preset

WITH_CODE = [page for page in PAGES if blocks(page, "python") and page.name != "README.md"]
"""The README's blocks stand alone: tests/test_readme.py runs each of them in an empty folder."""


def test_most_pages_have_code() -> None:
    without = {name_of(page) for page in PAGES} - {name_of(page) for page in WITH_CODE}
    assert without == {
        "CONTRIBUTING.md",
        "README.md",
        "docs/architecture.md",
        "docs/explanation/comparison.md",
        "docs/explanation/index.md",
        "docs/guides/compare-and-publish.md",
        "docs/guides/index.md",
        "docs/performance.md",
        "docs/predictions.md",
        "docs/reference/index.md",
        "docs/reference/losses.md",
        "docs/reference/methods.md",
        "docs/reference/objectives.md",
        "docs/results.md",
    }


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_the_code_of_a_page_runs(
    page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("documented")  # dataclasses look their module up
    monkeypatch.setitem(sys.modules, module.__name__, module)
    if page.name == "data.md":  # its reader has an adapter
        module.__dict__["adapter"] = fenchel.adapt("runs/ce")
    monkeypatch.setattr(train, "preset", lambda name: preset(name).replace(epochs=1))
    for number, block in enumerate(blocks(page, "python"), 1):
        exec(compile(block, f"{name_of(page)}, block {number}", "exec"), module.__dict__)
    if page.name == "start.md":  # as the page says
        assert module.__dict__["adapted_error"] < module.__dict__["source_error"] / 2


def test_the_sweep_of_the_guide_is_planned_as_it_stands(workplace: Path) -> None:
    page = next(page for page in PAGES if page.name == "compare-and-publish.md")
    (sweep,) = blocks(page, "toml")
    Path("guide.toml").write_text(sweep)
    assert len(make_plan(read_sweep(Path("guide.toml"))).jobs) == 3 * 15 * (2 + 3 * 2)


def test_the_sweep_of_the_documentation_is_planned_as_it_stands(workplace: Path) -> None:
    page = next(page for page in PAGES if page.name == "benchmark.md")
    whole, own, tuned = blocks(page, "toml")
    Path("whole.toml").write_text(whole)
    sweep = read_sweep(Path("whole.toml"))
    assert len(make_plan(sweep).jobs) == 3 * 15 * ((2 + 3 * 4) + (2 + 4))
    Path("own.toml").write_text(f"{whole}\n{own}")
    assert [choice.name for choice in read_sweep("own.toml").models] == ["my_net.py:build"]
    assert "tuned" in tuned
