"""TOML whose mistakes can be pointed at: the line of every key, and errors that name it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fenchel.names import unknown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KeyPath = tuple[str | int, ...]

_HEADER = re.compile(r"^\s*(\[\[|\[)\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"^\s*([A-Za-z0-9_\-\"'. ]+?)\s*=")


class Document:
    """A parsed TOML file that remembers where its keys stand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            text = path.read_text(encoding="utf-8")
            self.values: dict[str, Any] = tomllib.loads(text)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"there is no sweep file {str(path)!r}. Check the path; docs/benchmark.md shows one."
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: not valid TOML: {error}.") from error
        self._lines = text.splitlines()
        self._places = _places(self._lines)

    def line_of(self, path: KeyPath) -> int:
        """The line, from 1, on which a key stands.

        Keys of inline tables are looked for from the line on which the table around them begins.
        """
        if path in self._places:
            return self._places[path]
        start = self.line_of(path[:-1]) if path else 1
        if path and isinstance(path[-1], str):
            pattern = re.compile(rf"(?<![\w.-])[\"']?{re.escape(path[-1])}[\"']?\s*[=.]")
            for number in range(start, len(self._lines) + 1):
                if pattern.search(self._lines[number - 1]):
                    return number
        return start

    def error(self, path: KeyPath, message: object) -> ValueError:
        """An error that names the file and the line of a key."""
        return ValueError(f"{self.path}, line {self.line_of(path)}: {message}")

    def check_keys(self, path: KeyPath, table: Any, known: Iterable[str], kind: str) -> None:
        """Refuse a value that is no table, or its first unknown key."""
        if not isinstance(table, Mapping):
            raise self.error(path, f"{kind} is a table of settings; got {table!r}.")
        names = list(known)
        for name in table:
            if name not in names:
                raise self.error((*path, name), unknown(f"key of {kind}", name, names))


def _places(lines: list[str]) -> dict[KeyPath, int]:
    """The line of every table and of every key that begins a line."""
    places: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    prefix: KeyPath = ()
    for number, line in enumerate(lines, start=1):
        if header := _HEADER.match(line):
            prefix = _parts(header[2])
            if header[1] == "[[":
                counts[prefix] = counts.get(prefix, -1) + 1
                places.setdefault(prefix, number)
                prefix = (*prefix, counts[prefix])
            places.setdefault(prefix, number)
        elif key := _KEY.match(line):
            places.setdefault((*prefix, *_parts(key[1])), number)
    return places


def _parts(dotted: str) -> KeyPath:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
