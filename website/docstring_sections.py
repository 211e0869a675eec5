"""This library's docstrings for mkdocstrings: parameters and examples become sections of their own.

A docstring here is prose. A paragraph of lines such as `model: any nn.Module` explains parameters, and
lines that begin with `>>>` are an example.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

PARAMETER = re.compile(r"^(\w+(?:, \w+)*): ")
HEADING = re.compile(r"^(?:Attributes|Args|Returns|Raises|Yields|Examples):$")


class Sections(Extension):  # type: ignore[misc]
    """Rewrites docstrings as they are read."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Every module, class, function and attribute."""
        if obj.docstring is not None and not obj.is_alias:
            obj.docstring.value = sectioned(obj.docstring.value, _parameters_of(obj))


def _parameters_of(obj: Any) -> set[str]:
    return {each.name for each in obj.parameters} if obj.is_function else set()


def sectioned(text: str, parameters: set[str]) -> str:
    """The docstring with headings that the Google style knows."""
    return "\n\n".join(_paragraph(each, parameters) for each in text.split("\n\n"))


def _paragraph(text: str, parameters: set[str]) -> str:
    lines = text.split("\n")
    if HEADING.match(lines[0]):
        return text
    if lines[0].startswith(">>>"):
        return "Examples:\n" + "\n".join(f"    {line}" for line in lines)
    named = PARAMETER.match(lines[0])
    if named and named[1].split(", ")[0] in parameters:
        return "Args:\n" + "\n".join(f"    {line}" for line in lines)
    return text
