"""Every target of the Makefile has a rule that does something, and says what."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = [
    name for line in re.findall(r"^\.PHONY:(.*)$", MAKEFILE, re.MULTILINE) for name in line.split()
]

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def make(*arguments: str) -> str:
    """What make prints; as if set up, and as if no other make had started this one."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    ready = [f"--old-file=.venv/.ready-{extras}" for extras in ("dev", "demo", "docs", "package")]
    command = ["make", "--no-print-directory", "VENV=.venv", *ready, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@needs_make
@pytest.mark.parametrize("target", TARGETS)
def test_a_target_has_a_rule_that_does_something(target: str) -> None:
    commands = [
        line for line in make("--dry-run", target).splitlines() if not line.startswith("make:")
    ]
    assert commands, f"{target} is in .PHONY, and nothing is to be done for it"


@needs_make
def test_every_target_is_explained_by_make_help() -> None:
    shown = re.findall(r"^ +make (\w+) +\S", make("help"), re.MULTILINE)
    assert sorted(shown) == sorted(TARGETS)


@needs_make
def test_the_results_are_made_by_their_publisher() -> None:
    assert "python results/publish.py" in make("--dry-run", "results")


@needs_make
def test_the_browser_is_there_before_the_tests_are_run() -> None:
    commands = make("--dry-run", "unit")
    assert commands.index("--no-install-recommends chromium") < commands.index("-m pytest")
