"""Continuous integration does what everybody does: targets of the Makefile, on every supported Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / ".github").rglob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def jobs() -> dict[str, Any]:
    text = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)["jobs"]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_for_the_host_is_yaml(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)


def test_every_job_runs_targets_of_the_makefile_and_nothing_else() -> None:
    run = [step["run"] for job in jobs().values() for step in job["steps"] if "run" in step]
    assert sorted(run) == ["make docs", "make package", "make pages", "make test"]
    for command in run:
        assert re.search(rf"^{command.removeprefix('make ')}:", MAKEFILE, re.MULTILINE)


def test_every_supported_python_is_tested() -> None:
    supported = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text())
    assert jobs()["test"]["strategy"]["matrix"]["python"] == supported


def test_a_bug_report_asks_for_what_is_needed() -> None:
    path = ROOT / ".github" / "ISSUE_TEMPLATE" / "wrong-result.yml"
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    needed = {each["id"] for each in form["body"] if each.get("validations", {}).get("required")}
    assert needed == {"happened", "versions"}
