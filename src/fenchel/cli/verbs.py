"""What every verb takes, `--plugin FILE.py`, and how its mistakes are told."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.models import CommandInfo

from fenchel.cli.mistakes import options_of, told_in
from fenchel.plugins import load_plugins

Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE.py",
        is_eager=True,
        callback=lambda paths: load_plugins(paths or ()),
        help="A Python file that registers methods, losses or data sets of yours. Repeat for several.",
    ),
]


def make_all_verbs(app: typer.Typer) -> None:
    """Give every command of an application, at any depth, what all of them take."""
    for command in _commands(app):
        if command.callback is not None:
            command.callback = _with_plugins(command.callback)


def _with_plugins(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The verb with `--plugin`, whose files are run before the other arguments are looked at."""

    options = options_of(verb)

    @functools.wraps(verb)
    def run(*args: Any, plugin: object, **kwargs: Any) -> Any:
        with told_in(options):
            return verb(*args, **kwargs)

    signature = inspect.signature(verb, eval_str=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    option = inspect.Parameter("plugin", kind, default=None, annotation=Plugins)
    parameters = [*signature.parameters.values(), option]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _commands(app: typer.Typer) -> Iterator[CommandInfo]:
    yield from app.registered_commands
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _commands(group.typer_instance)
