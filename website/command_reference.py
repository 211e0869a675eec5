"""The reference of the command line, read off the program itself: every verb, every option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

MARKUP = re.compile(r"\[/?(?:bold|dim|italic)\]")
EXAMPLES = re.compile(r"\[bold\]Examples?\[/bold\]\s*")
EVERYWHERE = ("--help", "--json", "--plugin")
"""Options of all verbs, or of nearly all: told once."""

HEAD = """# Command line

This page is made from the program itself. `fenchel VERB --help` says the same in a terminal.

All verbs take these options, except where one has nothing to report as JSON:

- `--help`, `-h`: the help of the verb, with examples.
- `--json`: numbers as JSON on standard output; messages go to standard error.
- `--plugin FILE.py`: a Python file that registers methods, losses or data sets of yours; may be repeated.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | some work failed |
| 2 | a mistake in the call; one line says what to do |
| 4 | done, but adaptation looks harmful |
| 130, 143 | interrupted |

`FENCHEL_DEBUG=1` in the environment shows the traceback of a mistake. `FENCHEL_HOME` names the cache
folder, where data sets and published networks are kept.
"""


def page() -> str:
    """The whole page."""
    from typer.main import get_command

    from fenchel.cli import app

    return HEAD + "".join(_section(words, verb) for words, verb in verbs(get_command(app)))


def verbs(group: Any, *before: str) -> Iterator[tuple[str, Any]]:
    """Every verb at any depth, `bench export` for one, and its command."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from verbs(command, *before, name)
        else:
            yield " ".join((*before, name)), command


def _section(words: str, verb: Any) -> str:
    about, *rest = EXAMPLES.split(cleandoc(verb.help or ""), maxsplit=1)
    examples = "".join(f"{line.strip()}\n" for line in "".join(rest).splitlines() if line.strip())
    arguments = [each for each in verb.params if each.param_type_name == "argument"]
    options = [each for each in verb.params if each.param_type_name == "option"]
    usage = " ".join(["fenchel", words, *map(_name_of, arguments), "[OPTIONS]"])
    parts = [f"\n## fenchel {words}\n", f"{MARKUP.sub('', about).strip()}\n"]
    parts.append(f"Usage: `{usage}`\n")
    parts.append(f"```bash\n{examples}```\n")
    if arguments:
        parts.append("".join(map(_line, arguments)))
    panels: dict[str, list[Any]] = {}
    for option in options:
        if option.opts[0] not in EVERYWHERE and not option.hidden:
            panels.setdefault(getattr(option, "rich_help_panel", None) or "Options", []).append(
                option
            )
    for panel, members in panels.items():
        parts.append(f"**{panel}**\n")
        parts.append("".join(map(_line, members)))
    return "\n".join(parts)


def _name_of(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _line(parameter: Any) -> str:
    """One entry of a list: how it is written, what it means, what it is by default."""
    if parameter.param_type_name == "argument":
        written = f"`{_name_of(parameter)}`"
    else:
        names = [*parameter.opts, *parameter.secondary_opts]
        value = "" if parameter.is_flag or parameter.count else f" {_name_of(parameter)}"
        written = ", ".join(f"`{name}{value}`" for name in names)
    text = MARKUP.sub("", " ".join((parameter.help or "").split())).replace("|", "&#124;")
    return f"- {written}: {text}{_default_of(parameter)}\n"


def _default_of(parameter: Any) -> str:
    shown = getattr(parameter, "show_default", None)
    if isinstance(shown, str):
        return f" Default: {shown}."
    if parameter.required:
        return " Required."
    value = parameter.default
    if value in (None, False, (), [], "") or callable(value) or type(value).__name__ == "Sentinel":
        return ""
    return f" Default: `{getattr(value, 'value', value)}`."
