"""The reference covers every public name with an example, and every verb with every option."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.main import get_command

import fenchel
from fenchel.cli import app

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
LISTED = {
    name: page
    for page in sorted(REFERENCE.glob("*.md"))
    for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
}
PROGRAM = get_command(app)
PUBLIC = [name for name in fenchel.__all__ if name != "__version__"]


def found(dotted: str) -> Any:
    thing: Any = fenchel
    for part in dotted.split(".")[1:]:
        thing = getattr(thing, part)
    return thing


@pytest.mark.parametrize("name", fenchel.__all__)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    assert f"fenchel.{name}" in LISTED


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example(name: str) -> None:
    """Examples in docstrings are run by tests/test_docstrings.py."""
    assert ">>>" in (inspect.getdoc(getattr(fenchel, name)) or "")


@pytest.mark.parametrize("name", LISTED)
def test_what_the_reference_lists_exists_and_is_explained(name: str) -> None:
    thing = found(name)
    assert name == "fenchel.__version__" or inspect.getdoc(thing)
    if inspect.isclass(thing):
        own = [each for key, each in vars(thing).items() if not key.startswith("_")]
        functions = [each for each in own if inspect.isfunction(each)]
        inherited = [name for cls in thing.__mro__[1:] for name in vars(cls)]
        for function in functions:
            assert function.__doc__ or function.__name__ in inherited, f"{name}.{function.__name__}"


def test_every_public_name_has_its_place_and_its_example_on_the_site(site: Path) -> None:
    for name, page in LISTED.items():
        if name.count(".") > 1 or name == "fenchel.__version__":
            continue
        text = (site / "reference" / f"{page.stem}.html").read_text(encoding="utf-8")
        begin = text.index(f'id="{name}"')
        following = [at for other in LISTED if (at := text.find(f'id="{other}"')) > begin]
        section = text[begin : min(following, default=len(text))]
        assert "&gt;&gt;&gt;" in section, f"{name} shows no example"


@pytest.fixture(scope="module")
def command_reference() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "website"))
        import command_reference  # type: ignore[import-not-found]

        yield command_reference
        sys.modules.pop("command_reference")


@pytest.fixture(scope="module")
def sections(command_reference: ModuleType) -> dict[str, str]:
    parts = re.split(r"^## fenchel (.*)$", command_reference.page(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_verb_has_a_section_with_every_option_once(
    command_reference: ModuleType, sections: dict[str, str]
) -> None:
    verbs = dict(command_reference.verbs(PROGRAM))
    assert set(sections) == set(verbs)
    for words, verb in verbs.items():
        entries = re.findall(r"^- (`.*?): ", sections[words], re.MULTILINE)
        written = [option for entry in entries for option in re.findall(r"`(-[\w-]+)", entry)]
        expected = [
            option
            for each in verb.params
            if each.param_type_name == "option" and each.opts[0] not in command_reference.EVERYWHERE
            for option in (*each.opts, *each.secondary_opts)
        ]
        assert sorted(written) == sorted(expected), words


def test_every_example_of_the_page_is_understood(sections: dict[str, str]) -> None:
    for words, section in sections.items():
        (block,) = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
        lines = [
            shlex.split(line, comments=True) for line in block.replace("\\\n", " ").splitlines()
        ]
        examples = [line[line.index("fenchel") + 1 :] for line in lines if "fenchel" in line]
        assert examples, words  # beside them may stand others, as of curl
        for example in examples:
            parse(example)


def parse(arguments: list[str]) -> None:
    """Read all arguments as the command line would, down to the last option, and run nothing."""
    command: Any = PROGRAM
    context = None
    while True:
        context = command.make_context("fenchel", list(arguments), parent=context)
        if not hasattr(command, "commands"):
            return
        rest = [*context._protected_args, *context.args]
        _, command, arguments = command.resolve_command(context, rest)
