"""The code in the documentation is real: every Python block runs, in an empty folder."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
BLOCKS = [
    pytest.param(block, id=f"{path.name}-{number}")
    for path in [DOCS / "methods.md"]
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```$", path.read_text(encoding="utf-8"), re.S | re.M)
    )
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_code_block_of_the_documentation_runs(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("documented")  # dataclasses look their module up
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(block, "docs", "exec"), module.__dict__)
