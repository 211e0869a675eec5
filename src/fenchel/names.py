"""Names at the interface: registries, `name:key=value` specs, and errors that suggest the nearest name.

Strings are used on the command line, in sweep files and in records; the code passes objects. This
module turns one into the other, for losses, objectives, methods, corruptions, data sets and
models alike. Whoever adds one writes `@fenchel.register("name")` above it.
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
from types import FunctionType
from typing import Any, Generic, TypeVar

from fenchel.plugins import Plugin, running_plugin

T = TypeVar("T")
Thing = TypeVar("Thing")

HOMES = {
    "loss": "fenchel.losses.base",
    "objective": "fenchel.objectives.base",
    "method": "fenchel.adapters.method",
    "corruption": "fenchel.data.corruptions.base",
    "data set": "fenchel.data.registry",
    "model": "fenchel.models.registry",
}
"""Every kind of thing that `register` takes, and the module that holds its registry."""

_BASES = {
    "fenchel.losses.base.Loss": "loss",
    "fenchel.objectives.base.Objective": "objective",
    "fenchel.adapters.method.Method": "method",
    "fenchel.data.registry.DatasetEntry": "data set",
    "torch.nn.modules.module.Module": "model",
}
"""The classes by which a kind is recognised, by name: this module imports none of them."""

_SHORT = {"on-the-fly": "source=generated"}
"""Words that stand for an argument, as in `imagenet-c:on-the-fly`."""
_OUTER_COMMA = re.compile(r",(?![^(\[]*[)\]])")
"""Matches a comma between arguments, not one within a tuple or list."""


class UnknownNameError(ValueError, KeyError):
    """A name that is not in a registry: a user's mistake, and a missing key to `Mapping`."""

    __str__ = ValueError.__str__  # KeyError would show the quoted message


def unknown(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """The error for an unknown name: the name, the nearest match, and every valid name."""
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

    Args:
        kind: the kind of thing that is listed, such as "loss"; `register` finds the registry by it.
        group: the entry-point group.
        adopt: (name, thing, **facts) -> entry; makes the entry of a thing given to `register`.
        package: where things of this kind are defined; it is imported before the first look.
        also: another registry whose names are found here as well.
        iterates: which things are iterated over; the others are found by name alone.
    """

    def __init__(
        self,
        kind: str,
        *,
        group: str | None = None,
        adopt: Callable[..., T] | None = None,
        also: Registry[Any] | None = None,
        iterates: Callable[[T], bool] = lambda thing: True,
        package: str | None = None,
    ) -> None:
        self.kind = kind
        self._iterates = iterates
        self._group = group
        self._package = package
        self._adopt = adopt
        self._also = also
        self._things: dict[str, T] = {}
        self._plugins: dict[str, Plugin] = {}
        if kind in HOMES:
            _REGISTRIES[kind] = self

    def add(self, name: str, thing: T) -> T:
        """List `thing` under `name`; a name is taken once, unless its own definition is run again."""
        taken = {**(self._also._things if self._also is not None else {}), **self._things}
        if name in taken and not _same_definition(taken[name], thing):
            raise ValueError(
                f"a {self.kind} named {name!r} exists already: {taken[name]!r}. Choose another name."
            )
        self._things[name] = thing
        if (plugin := running_plugin()) is not None:
            self._plugins[name] = plugin
        return thing

    def register(self, name: str, **facts: Any) -> Callable[[Thing], Thing]:
        """Decorator form of `add`."""

        def decorate(thing: Thing) -> Thing:
            self.add(name, self._adopt(name, thing, **facts) if self._adopt else thing)  # type: ignore[arg-type]
            return thing

        return decorate

    def plugin_of(self, name: str) -> Plugin | None:
        """The plugin file that brought the thing of this name, if one did."""
        if name in self._things or self._also is None:
            return self._plugins.get(name)
        return self._also.plugin_of(name)

    def _load_package(self) -> None:
        if self._package is not None:
            package, self._package = self._package, None
            import_module(package)

    def _load_entry_points(self) -> None:
        if self._group is not None:
            group, self._group = self._group, None
            for point in entry_points(group=group):
                self.register(point.name)(point.load())

    def everything(self) -> dict[str, T]:
        """Every name that can be looked up, including those that are not iterated over."""
        self._load_package()
        self._load_entry_points()
        others = {} if self._also is None else self._also.everything()
        return {
            **self._things,
            **{n: other for n, other in others.items() if n not in self._things},
        }

    def __getitem__(self, name: str) -> T:
        try:
            return self.everything()[name]
        except (KeyError, TypeError):
            raise unknown(self.kind, name, self.everything()) from None

    def __contains__(self, name: object) -> bool:
        return name in self.everything()

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, thing in self.everything().items() if self._iterates(thing)])

    def __len__(self) -> int:
        return len(list(iter(self)))


_REGISTRIES: dict[str, Registry[Any]] = {}


def registry_of(kind: str) -> Registry[Any]:
    """The registry of a kind of thing; the package that holds it is imported if need be."""
    if kind not in HOMES:
        raise unknown("kind of thing to register", kind, HOMES)
    import_module(HOMES[kind])
    return _REGISTRIES[kind]


def register(
    name: str | None = None, *, kind: str | None = None, **facts: Any
) -> Callable[[Thing], Thing]:
    """Decorator: list a loss, an objective, a method, a corruption, a data set or a model by name.

    What a class is follows from its base: `Loss`, `Objective`, `Method`, `nn.Module`. A function says
    it by `kind=`: a "model" builds a network, a "corruption" changes images (with `cifar=` and
    `imagenet=`, its strengths at severities 1 to 5), a "data set" reads one (with `what=`, `splits=`
    and more, see `DatasetEntry`). Without a name it is listed under its own.

    >>> from dataclasses import dataclass
    >>> import fenchel
    >>> @register("spread")
    ... @dataclass(frozen=True)
    ... class Spread(fenchel.Objective):
    ...     def value(self, h):
    ...         return -h.var(-1)
    >>> from fenchel.adapters import METHODS
    >>> "spread" in METHODS
    True
    """

    def decorate(thing: Thing) -> Thing:
        found = kind or _kind_of(thing)
        if found is None:
            raise TypeError(
                f"register lists {', '.join(HOMES)}; it cannot tell which of them {thing!r} is. Derive "
                "the class from fenchel.Loss, Objective, Method or nn.Module, or pass kind=."
            )
        title = name or getattr(thing, "__name__", None)
        if not isinstance(title, str):
            raise TypeError(f"register needs a name for {thing!r}: @register('name').")
        registry = _REGISTRIES[found] if found in _REGISTRIES else registry_of(found)
        return registry.register(title, **facts)(thing)

    return decorate


def _same_definition(old: object, new: object) -> bool:
    """Whether one replaces the other: the same object, or its code run again, as notebooks do."""
    return old is new or bool(_definitions(old) & _definitions(new))


def _definitions(thing: object) -> set[tuple[str, str]]:
    """Where a class or function was defined: its module, and the files of its code."""
    name = getattr(thing, "__qualname__", None)
    if name is None:
        return set()
    parts = (thing, *vars(thing).values()) if isinstance(thing, type) else (thing,)
    files = {part.__code__.co_filename for part in parts if isinstance(part, FunctionType)}
    return {(place, name) for place in {thing.__module__, *files} if place[0] != "<"}


def _kind_of(thing: object) -> str | None:
    classes = thing.__mro__ if isinstance(thing, type) else type(thing).__mro__
    names = (f"{cls.__module__}.{cls.__qualname__}" for cls in classes)
    return next((_BASES[name] for name in names if name in _BASES), None)


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
        key, equals, value = _SHORT.get(item, item).partition("=")
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
