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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from documented_text import PAGES, ROOT, Command, commands, commands_of
from documented_workplace import SHORT, run
from typer.main import get_command

from fenchel.cli import app

FENCHEL = get_command(app)


@dataclass(frozen=True)
class Way:
    """How a command is run: with other words in the place of some, options added, places emptied."""

    instead: dict[str, str] = field(default_factory=dict)
    more: str = ""
    without: tuple[str, ...] = ()

    def of(self, text: str) -> str:
        for word, other in self.instead.items():
            assert word in text, f"{word} is not in {text}"
            text = text.replace(word, other)
        return f"{text} {self.more}".strip()


AS_IT_IS = Way()
ONE_TRIAL = "--learning-rate 0.01 --learning-rate 0.001 --temperature 1"

RUN = {
    "fenchel adapt --method learned:path=FILE": Way(
        {"FILE": "runs/meta-ce/learned.safetensors"}, "--model runs/ce --images digits.npy"
    ),
    "fenchel adapt --model my_net.py:build --weights net.pt --trained-with poly:epsilon=6 "
    "--images photos/ --out predictions.csv": AS_IT_IS,
    "fenchel adapt --plugin my_method.py --method margin:reach=1.0 --model my_net.py:build "
    "--images photos/": AS_IT_IS,
    "fenchel bench export sweep.toml --out results.csv": AS_IT_IS,
    "fenchel bench import other.sqlite results.csv": AS_IT_IS,
    "fenchel bench status sweep.toml": AS_IT_IS,
    "fenchel bench sweep.toml --dry-run": AS_IT_IS,
    "fenchel bench sweep.toml --limit 500": AS_IT_IS,
    "fenchel bench sweep.toml --workers 2": Way(without=("sweep.sqlite*",)),
    "fenchel data list": AS_IT_IS,
    "fenchel data list [--json]": Way({"[--json]": "--json"}),
    "fenchel data make cifar10-c": Way(more="--corruption fog"),
    "fenchel data make cifar10-c --severity 5": AS_IT_IS,
    "fenchel data show cifar10 --out grid.png": AS_IT_IS,
    "fenchel data verify PATH": Way({"PATH": "photos"}),
    "fenchel derive my_losses.py:focal": AS_IT_IS,
    "fenchel doctor": AS_IT_IS,
    "fenchel list losses": AS_IT_IS,
    "fenchel list methods": AS_IT_IS,
    "fenchel list methods --plugin my_method.py": AS_IT_IS,
    "fenchel list zoo": AS_IT_IS,
    "fenchel meta fit runs/meta-ce --score": AS_IT_IS,
    "fenchel meta plot runs/meta-ce": AS_IT_IS,
    "fenchel meta sweep --sources runs": Way(more="--dry-run"),
    "fenchel meta train --checkpoint runs/ce --data cifar10-c --task-loss cross-entropy "
    "--out runs/meta-ce": Way(more=SHORT, without=("runs/meta-ce",)),
    "fenchel meta train --checkpoint source.safetensors --data cifar10": Way(more=SHORT),
    "fenchel report results.sqlite --out report.html": AS_IT_IS,
    "fenchel report sweep.sqlite --figures figures --format latex": AS_IT_IS,
    "fenchel report sweep.sqlite --out report.html": AS_IT_IS,
    "fenchel reproduce fig-gaussian": Way(more="--scale smoke"),
    "fenchel reproduce fig-meta --scale cpu --workers 2": Way(more="--dry-run"),
    "fenchel reproduce list": AS_IT_IS,
    "fenchel reproduce table-poly --scale cpu --checkpoints runs": Way(more="--dry-run"),
    "fenchel reproduce table-poly --scale cpu --workers 2": Way(more="--dry-run"),
    "fenchel train --data cifar10 --model resnet26 --loss cross-entropy --out runs/ce": Way(
        more="--epochs 1 --limit 20 --batch-size 20", without=("runs/ce",)
    ),
    "fenchel train --data cifar10 --model resnet26 --loss poly:epsilon=6": Way(
        more="--epochs 1 --limit 20 --batch-size 20"
    ),
    "fenchel train --data cifar10 --model resnet26 --loss poly:epsilon=6 --epochs 20 --seed 0 "
    "--out runs/poly": Way(more="--epochs 1 --limit 20 --batch-size 20", without=("runs/poly",)),
    "fenchel tune sweep.toml --optimizer sgd --limit 2000 --final-limit 5000": Way(more=ONE_TRIAL),
    "fenchel tune sweep.toml --workers 2": Way(more=f"{ONE_TRIAL} --optimizer sgd"),
}
"""What is run, in the workplace; what is added makes it small, by options that the last one wins."""

PARSED = {
    "fenchel bench sweep.toml --executor ray --ray-address auto": "needs a Ray cluster",
    "fenchel data fetch cifar10": "downloads; tests/data/test_fetch.py fetches from its own server",
    "fenchel data fetch cifar10 mnist": "downloads, as above",
    "fenchel demo": "trains for a minute; tests/demo runs it smaller",
    "make bench": "measures for hours",
    "make demo": "sets up an environment, then trains for a minute",
    "make format": "rewrites the tree",
    "make results": "rewrites the tree; tests/test_results.py makes the same files",
    "make test": "would run this test",
    "pip install .": "installs",
    "pip install 'fenchel[demo]'": "installs",
    "pip install 'fenchel[ray]'": "installs",
    "python benchmarks/memory.py --quick": "takes a minute; tests/benchmarks runs it with one round",
    "python benchmarks/step.py --network thin --retain --rounds 9": "measures for minutes",
    "python benchmarks/train.py": "measures for minutes; tests/benchmarks runs it with --quick",
    "python results/publish.py collect reproduce": "rewrites the tree; tests/test_results.py",
}
"""What is parsed to the last option and not run, and why."""

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


def test_the_tables_have_no_command_that_no_page_has() -> None:
    assert {*RUN, *PARSED} <= {each.text for each in DOCUMENTED}
    assert not RUN.keys() & PARSED.keys()


@pytest.mark.parametrize("text", RUN)
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


@pytest.mark.parametrize("text", PARSED)
def test_a_command_that_is_too_long_to_run_is_understood(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, *arguments = shlex.split(text)
    PARSERS[program](arguments, monkeypatch)


def test_an_option_that_does_not_exist_is_not_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (
        "fenchel data fetch cifar10 --fast",
        "fenchel data fly cifar10",
        "python benchmarks/step.py --network thick",
        "make tea",
        "pip install 'fenchel[tea]'",
    ):
        program, *arguments = shlex.split(text)
        with pytest.raises((Exception, SystemExit)):
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


PARSERS = {
    "fenchel": parse_fenchel,
    "make": parse_make,
    "python": parse_script,
    "pip": parse_pip,
}
