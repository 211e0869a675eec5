"""Names at the rim: registries, `name:key=value` specs, and errors that suggest the nearest name.

Strings live in the command line, in sweep files and in records; the code passes objects. This
module is where one becomes the other, for losses, corruptions, data sets and models alike.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_OUTER_COMMA = re.compile(r",(?![^(\[]*[)\]])")
"""A comma between arguments, not one within a tuple or list."""


class UnknownNameError(ValueError, KeyError):
    """A name that is not in a registry: a user's mistake, and a missing key to `Mapping`."""

    __str__ = ValueError.__str__  # KeyError would show the quoted message


def unknown(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """The error for a name nobody knows: what came in, the nearest match, and every valid name."""
    names = sorted(known)
    nearest = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return UnknownNameError(
        f"unknown {kind} {name!r}.{hint} Known: {', '.join(names) or '(none)'}."
    )


class Registry(Mapping[str, T], Generic[T]):
    """A mapping from names to things, open to third parties through an entry-point group.

    A package adds its own by declaring, for example for the losses::

        [project.entry-points."fenchel.losses"]
        tversky = "their_package:TverskyLoss"
    """

    def __init__(self, kind: str, *, group: str | None = None) -> None:
        self.kind = kind
        self._group = group
        self._things: dict[str, T] = {}

    def add(self, name: str, thing: T) -> T:
        """Register `thing` under `name`; a name is taken only once."""
        if name in self._things and self._things[name] is not thing:
            raise ValueError(
                f"a {self.kind} named {name!r} exists already: {self._things[name]!r}. "
                "Choose another name."
            )
        self._things[name] = thing
        return thing

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator form of `add`."""
        return lambda thing: self.add(name, thing)

    def _load_entry_points(self) -> None:
        if self._group is not None:
            group, self._group = self._group, None
            for point in entry_points(group=group):
                self.add(point.name, point.load())

    def __getitem__(self, name: str) -> T:
        self._load_entry_points()
        try:
            return self._things[name]
        except KeyError:
            raise unknown(self.kind, name, self._things) from None

    def __contains__(self, name: object) -> bool:
        self._load_entry_points()
        return name in self._things

    def __iter__(self) -> Iterator[str]:
        self._load_entry_points()
        return iter(self._things)

    def __len__(self) -> int:
        self._load_entry_points()
        return len(self._things)


def import_submodules(package: str, path: Iterable[str]) -> None:
    """Import every module of a package, so that a new file registers itself with no other edit."""
    for module in iter_modules(path):
        import_module(f"{package}.{module.name}")


def parse_spec(spec: str) -> tuple[str, dict[str, Any]]:
    """Split `name:key=value,key=value` into the name and its arguments.

    >>> parse_spec("poly:epsilon=6")
    ('poly', {'epsilon': 6})
    """
    name, _, tail = spec.strip().partition(":")
    arguments: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in _OUTER_COMMA.split(tail))):
        key, equals, value = item.partition("=")
        if not equals:
            raise ValueError(
                f"a spec is written name:key=value,key=value; {item!r} in {spec!r} has no '='."
            )
        arguments[key.strip()] = _literal(value.strip())
    return name, arguments


def format_spec(name: str, arguments: Mapping[str, Any]) -> str:
    """The inverse of `parse_spec`, with keys in the order given."""
    tail = ",".join(f"{key}={value}" for key, value in arguments.items())
    return f"{name}:{tail}" if tail else name


def build(registry: Mapping[str, Callable[..., T]], kind: str, spec: str) -> T:
    """The object that `spec` names: look the factory up, check its arguments, call it."""
    name, arguments = parse_spec(spec)
    factory = registry[name]
    if dataclasses.is_dataclass(factory):
        fields = [field.name for field in dataclasses.fields(factory) if field.init]
        for key in arguments:
            if key not in fields:
                raise unknown(f"argument of the {kind} {name!r}:", key, fields)
    try:
        return factory(**arguments)
    except TypeError as error:
        raise ValueError(f"cannot build the {kind} {spec!r}: {error}.") from error


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
