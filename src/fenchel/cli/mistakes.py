"""Mistakes in a call, told in the words of the command line: `--learning-rate`, not `learning_rate=`."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from typer.models import OptionInfo

from fenchel.cli.console import err

_MENTION = (
    r"(?<![\w.'\"`-])"  # not within a longer name, a quotation or an option
    r"(?P<name>{names})"
    r"(?:=\[(?P<list>[^\]]*)\]|=(?P<quote>['\"]?)(?P<value>[\w.+:/-]*\w)?(?P=quote)|{bare})"
)
_BARE = {
    True: r"\b",  # trained_with is a name wherever it stands
    False: r"(?= must | of an? [\w ]+ (?:must|is) | [<>])",  # temperature only where a rule follows
}
_PHRASES = {
    "gray": {"pass mode='L'": "add --gray", "pass mode='RGB'": "leave --gray out"},
}
"""What is no option under the name of the argument: by an option of the verb, what to say instead."""
_IN_A_FILE = re.compile(r"\bline \d+:")


def options_of(verb: Callable[..., Any]) -> dict[str, str]:
    """The options of a verb by the names of their Python arguments."""
    found = {}
    for parameter in inspect.signature(verb, eval_str=True).parameters.values():
        for about in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(about, OptionInfo):
                written = (about.default, *(about.param_decls or ()))  # as Annotated has them
                own = (str(name) for name in written if str(name).startswith("--"))
                usual = f"--{parameter.name.replace('_', '-')}"
                found[parameter.name] = next(own, usual).partition("/")[0]
    return found


def in_options(message: str, options: Mapping[str, str]) -> str:
    """The message with options where it speaks of Python arguments, unless it is about a file.

    >>> in_options("got keep='best' with held_out=0.", {"keep": "--keep", "held_out": "--held-out"})
    'got --keep best with --held-out 0.'
    """
    if _IN_A_FILE.search(message):
        return message
    for option in _PHRASES.keys() & options.keys():
        for phrase, instead in _PHRASES[option].items():
            message = message.replace(phrase, instead)
    for is_python, bare in _BARE.items():
        names = "|".join(name for name in options if ("_" in name) == is_python)
        if names:
            pattern = _MENTION.format(names=names, bare=bare)
            message = re.sub(pattern, lambda found: _option(found, options), message)
    return message


def _option(found: re.Match[str], options: Mapping[str, str]) -> str:
    option = options[found["name"]]
    listed = re.sub(r"['\"\s]", "", found["list"] or "")
    value = listed or found["value"]
    return option if value in (None, "", "True") else f"{option} {value}"


@contextmanager
def told_in(options: Mapping[str, str]) -> Iterator[None]:
    """Whatever a call refuses in the block is told in these options."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (in_options(error.args[0], options),)
        raise


@contextmanager
def warnings_told_in(options: Mapping[str, str]) -> Iterator[None]:
    """What adaptation warns of in the block is one line on standard error, told in these options."""
    from fenchel.adapters import AdaptationWarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **further: Any) -> None:
        if not issubclass(category, AdaptationWarning):
            usual(message, category, *place, **further)
            return
        told = in_options(str(message), options)
        err.print(f"warning: {told}", style="yellow", soft_wrap=True, markup=False, highlight=False)

    usual = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("default", AdaptationWarning)
        warnings.showwarning = show
        yield
