"""Every command of the documentation is run, or at least understood, and none is passed over."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documented_commands import PARSED, RUN
from documented_text import PAGES, ROOT, Command, commands, commands_of, name_of
from documented_workplace import run
from torch.distributed.run import get_args_parser
from typer.main import get_command

from fenchel.cli import app

FENCHEL = get_command(app)


DOCUMENTED = [command for page in PAGES for command in commands(page)]


def names_a_verb(command: Command) -> bool:
    """Whether a sentence speaks of a command rather than giving one: `fenchel train`."""
    return command.in_a_sentence and command.text not in RUN and _is_verb(command.text)


def _is_verb(text: str) -> bool:
    program, *words = text.split()
    found: Any = FENCHEL
    for word in words:
        found = getattr(found, "commands", {}).get(word)
    return program == "fenchel" and found is not None


def passed_over(documented: list[Command]) -> list[str]:
    """The commands that no test knows of."""
    return [
        str(each)
        for each in documented
        if each.text not in RUN and each.text not in PARSED and not names_a_verb(each)
    ]


def test_no_command_of_the_documentation_is_passed_over() -> None:
    assert passed_over(DOCUMENTED) == []
    assert len({each.text for each in DOCUMENTED}) > 50


def test_a_new_command_on_a_page_is_noticed_wherever_it_stands() -> None:
    text = (
        "Try `fenchel adapt --fast`.\n\n    fenchel bench it.toml\n\n```console\n$ make tea\n```\n"
    )
    assert passed_over(commands_of(text, "new.md")) == [
        "new.md: make tea",
        "new.md: fenchel bench it.toml",
        "new.md: fenchel adapt --fast",
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_line_that_starts_like_a_command_is_read_as_one(page: Path) -> None:
    text = re.sub(
        r"^```(?:python|toml)$.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M
    )
    found = re.findall(r"^ *(?:\$ *)?((?:fenchel|python|pip) +[a-z]\S+)", text, re.MULTILINE)
    read = [" ".join(command.text.split()[:2]) for command in commands(page)]
    assert {" ".join(start.split()) for start in found} <= set(read)


def test_the_tables_have_no_command_that_no_page_has() -> None:
    assert {*RUN, *PARSED} <= {each.text for each in DOCUMENTED}
    assert not RUN.keys() & PARSED.keys()


@pytest.mark.parametrize("text", RUN, ids=list(RUN))
def test_a_command_of_the_documentation_runs(text: str, workplace: Path) -> None:
    way = RUN[text]
    for gone in [found for place in way.without for found in workplace.glob(place)]:
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    made = re.findall(r"--(?:out|figures) (\S+)", text)
    run(way.of(text))
    for place in made:
        assert (workplace / place).exists(), f"{place} was not written"


@pytest.mark.parametrize("text", sorted({c.text for c in DOCUMENTED if names_a_verb(c)}))
def test_a_command_that_a_sentence_speaks_of_exists(text: str) -> None:
    run(f"{text} --help")


def test_every_option_that_a_sentence_names_exists() -> None:
    scripts = [*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "results").glob("*.py")]
    known = {option for command in every_command(FENCHEL) for option in options_of(command)}
    known |= {o for path in scripts for o in re.findall(r'"(--[a-z-]+)"', path.read_text())}
    for page in PAGES:
        for span in re.findall(r"`(--[^`]*)`", page.read_text(encoding="utf-8")):
            named = set(re.findall(r"(?<!\S)--[a-z-]+", span))
            assert named <= known, f"{name_of(page)}: {span}"


def test_every_script_that_a_page_names_is_there() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for path in re.findall(r"\b((?:benchmarks|results|tests|examples)/[\w/-]+\.\w+)", text):
            assert (ROOT / path).exists(), f"{name_of(page)}: {path}"


def every_command(group: Any) -> Iterator[Any]:
    """A group and all commands below it."""
    yield group
    for command in getattr(group, "commands", {}).values():
        yield from every_command(command)


def options_of(command: Any) -> list[str]:
    return [
        *command.get_help_option_names(command.context_class(command)),
        *(option for each in command.params for option in (*each.opts, *each.secondary_opts)),
    ]


@pytest.mark.parametrize("text", PARSED)
def test_a_command_that_is_too_long_to_run_is_understood(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, *arguments = shlex.split(text)
    PARSERS[program](arguments, monkeypatch)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fenchel data fetch cifar10 --fast", "No such option: --fast"),
        ("fenchel data fly cifar10", "No such command 'fly'"),
        ("fenchel data fetch", "Missing parameter|Missing argument"),
        ("python benchmarks/step.py --network thick", "2"),
        ("make tea", "returned non-zero exit status 2"),
        ("torchrun --nproc-per-node 2 -m fenchel adapt --fast", "No such option: --fast"),
        ("pip install 'fenchel[tea]'", "tea"),
    ],
)
def test_what_does_not_exist_is_not_understood(
    text: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, *arguments = shlex.split(text)
    with pytest.raises((Exception, SystemExit), match=reason):
        PARSERS[program](arguments, monkeypatch)


def parse_fenchel(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Through every group down to the command, whose options are all read and checked."""
    command: Any = FENCHEL
    context = None
    while True:
        context = command.make_context("fenchel", list(arguments), parent=context)
        if not hasattr(command, "commands"):
            return
        rest = [*context._protected_args, *context.args]
        _, command, arguments = command.resolve_command(context, rest)


def parse_make(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By make itself, which says what it would do."""
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    subprocess.run(
        ["make", "--dry-run", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        check=True,
    )


class Understood(Exception):
    """The arguments of a script have been read."""


def parse_script(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the script's own parser; the script ends there."""
    parse = ArgumentParser.parse_args

    def parse_and_end(self: ArgumentParser, *args: Any, **kwargs: Any) -> None:
        parse(self, *args, **kwargs)
        raise Understood

    script = ROOT / arguments[0]
    monkeypatch.setattr(sys, "argv", [str(script), *arguments[1:]])
    monkeypatch.syspath_prepend(str(script.parent))
    monkeypatch.setattr(ArgumentParser, "parse_args", parse_and_end)
    with pytest.raises(Understood):
        runpy.run_path(str(script), run_name="__main__")


def parse_pip(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is one of the project's."""
    verb, what = arguments
    assert verb == "install"
    if what != ".":
        extra = what.removeprefix("fenchel[").removesuffix("]")
        assert f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def parse_torchrun(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By torchrun's own parser, and what it runs by ours."""
    told = get_args_parser().parse_args(arguments)
    assert told.module
    assert told.training_script == "fenchel"
    parse_fenchel(told.training_script_args, monkeypatch)


PARSERS = {
    "torchrun": parse_torchrun,
    "fenchel": parse_fenchel,
    "make": parse_make,
    "python": parse_script,
    "pip": parse_pip,
}
