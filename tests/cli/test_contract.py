"""What holds for every verb: an example in its help, and `--json`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from fenchel.cli import app

WITHOUT_JSON: dict[str, str] = {}
"""Verbs that report nothing, with the reason. There is none: whoever adds one says here why."""


def verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command without commands of its own, with the words that call it."""
    for name, child in getattr(command, "commands", {}).items():
        if hasattr(child, "commands"):
            yield from verbs(child, (*path, name))
        else:
            yield (*path, name), child


VERBS = {" ".join(path): command for path, command in verbs(typer.main.get_command(app))}


def test_the_tree_is_walked_to_its_leaves() -> None:
    assert {"demo", "meta fit", "bench import", "data show", "doctor"} <= set(VERBS)
    assert set(WITHOUT_JSON) <= set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_speaks_json(verb: str) -> None:
    options = {option for parameter in VERBS[verb].params for option in parameter.opts}
    assert ("--json" in options) != (verb in WITHOUT_JSON)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_has_an_example(verb: str) -> None:
    result = CliRunner().invoke(app, [*verb.split(), "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    call = f"fenchel {verb.removesuffix(' run')} "  # `bench SWEEP.toml` is short for `bench run`
    _, heading, examples = result.output.partition("Example")
    assert heading
    assert call in " ".join(examples.split("Options")[0].split()) + " "
