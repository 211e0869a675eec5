"""Read a sweep from TOML; every mistake names the file, the line and the nearest valid name.

checkpoints = ["runs/poly"]             # files or folders of training runs
seeds = [0, 1, 2]
plugins = ["my_method.py"]              # files that register methods and the like of one's own

[[models]]                              # besides checkpoints, or instead of them
name = "network.py:build"
weights = "network.pt"
trained_with = "poly:epsilon=6"

[data]                                  # or several [[data]]
name = "cifar10-c"
corruptions = "test"                    # test, validation, all, none, or a list
severities = [5]

[stream]
batch_size = 200

[[methods]]
name = ["conjugate", "entropy"]
learning_rate = [1e-3, 1e-2]            # a list is a grid
optimizer = "adam"
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fenchel.adapters import METHODS
from fenchel.bench.canonical import ADAPTATION_DEFAULTS, canonical_settings
from fenchel.bench.sweep import DataChoice, MethodChoice, ModelChoice, StreamChoice, Sweep
from fenchel.bench.toml_lines import Document, KeyPath
from fenchel.losses import CrossEntropy
from fenchel.names import parse_spec, unknown
from fenchel.plugins import load_plugins

T = TypeVar("T")

_TOP_LEVEL = ("data", "checkpoints", "models", "methods", "seeds", "stream", "plugins")
_LIST_VALUED = ("parameters", "input_range", "mean", "std")
"""Settings whose one value is a list already: a grid of them is a list of lists."""
_TOGETHER = ("mean", "std")
"""Settings that make sense together only."""


def read_sweep(path: str | Path, models: Sequence[ModelChoice] = ()) -> Sweep:
    """The sweep in a TOML file; its paths are relative to the file.

    `models` take the place of the checkpoints and models in it, which need then not be there.
    """
    document = Document(Path(path))
    document.check_keys((), document.values, _TOP_LEVEL, "a sweep")
    plugins = _plugins(document)
    for name in ("data", "methods"):
        if name not in document.values:
            raise document.error((), f"a sweep needs {name!r}, which is missing.")
    if not models and not document.values.keys() & {"checkpoints", "models"}:
        raise document.error((), "a sweep needs 'checkpoints' or 'models', which are missing.")
    return _located(
        document,
        (),
        Sweep,
        {
            "data": _data(document),
            "checkpoints": [] if models else _checkpoints(document),
            "models": models or _models(document),
            "methods": _methods(document),
            "seeds": _list_of(document, ("seeds",), int, default=[0]),
            "stream": _choice(
                document, ("stream",), document.values.get("stream", {}), StreamChoice
            ),
            "folder": Path(path).parent,
            "plugins": plugins,
        },
    )


def _plugins(document: Document) -> list[str]:
    """Load the plugins first: what they bring may be named anywhere in the sweep."""
    if "plugins" not in document.values:
        return []
    names: list[str] = _list_of(document, ("plugins",), str)
    try:
        load_plugins(document.path.parent / name for name in names)
    except (OSError, ImportError) as error:
        raise document.error(("plugins",), error) from error
    return names


def _checkpoints(document: Document) -> list[str]:
    return _list_of(document, ("checkpoints",), str) if "checkpoints" in document.values else []


def _models(document: Document) -> list[ModelChoice]:
    choices = []
    for path, table in _tables(document, "models"):
        if isinstance(table, Mapping) and "name" not in table:
            raise document.error(path, "a model needs its name: name = 'network.py:build'.")
        choices.append(_choice(document, path, table, ModelChoice))
    return choices


def _tables(document: Document, name: str) -> list[tuple[KeyPath, Any]]:
    """One table or several of them, with their places."""
    given = document.values.get(name, [])
    if isinstance(given, list):
        return [((name, number), item) for number, item in enumerate(given)]
    return [((name,), given)]


def _data(document: Document) -> list[DataChoice]:
    choices = []
    for path, table in _tables(document, "data"):
        if isinstance(table, Mapping) and "name" not in table:
            raise document.error(path, "data needs the name of a data set: name = 'cifar10-c'.")
        choice = _choice(document, path, table, DataChoice)
        paths: dict[str, Any] = {
            name: str(document.path.parent / Path(value).expanduser())
            for name in ("root", "textures")
            if (value := getattr(choice, name)) is not None
        }
        choices.append(dataclasses.replace(choice, **paths))
    return choices


def _methods(document: Document) -> list[MethodChoice]:
    choices: list[MethodChoice] = []
    for number, given in enumerate(_list_of(document, ("methods",), (str, dict))):
        path: KeyPath = ("methods", number)
        table = {"name": given} if isinstance(given, str) else given
        if "name" not in table:
            raise document.error(path, "a method needs its name: name = 'conjugate'.")
        names = table["name"] if isinstance(table["name"], list) else [table["name"]]
        if "title" in table and len(names) > 1:
            raise document.error(
                (*path, "title"),
                f"a title is of one method; got {len(names)} names. Write them apart.",
            )
        for name in names:
            choices.append(_method(document, path, str(name), table))
    return choices


def _method(document: Document, path: KeyPath, name: str, table: Mapping[str, Any]) -> MethodChoice:
    method = parse_spec(name)[0]
    if method not in METHODS:
        raise document.error((*path, "name"), unknown("method", method, METHODS))
    document.check_keys(path, table, _settings_of(method), f"method {name!r}")
    grid = {
        setting: _as_grid(setting, value)
        for setting, value in table.items()
        if setting not in ("name", "tuned", "title")
    }
    for setting, values in grid.items():
        _check_values(document, (*path, setting), method, values)
    tuned = table.get("tuned")
    choice = {
        "name": name,
        "grid": grid,
        "tuned": None if tuned is None else str(document.path.parent / str(tuned)),
        "title": table.get("title"),
    }
    return _located(document, path, MethodChoice, choice)


def _check_values(document: Document, path: KeyPath, method: str, values: list[Any]) -> None:
    """Refuse values that no source model could take, while their line is known."""
    setting = str(path[-1])
    if not values:
        raise document.error(path, f"a grid needs at least one value; {setting} has none.")
    if setting in _TOGETHER or METHODS[method].needs_options():
        return  # the plan checks what only makes sense together
    for value in values:
        try:
            canonical_settings(method, {setting: value}, CrossEntropy(), {"input_range": [0, 1]})
        except (ValueError, TypeError) as error:
            raise document.error(path, error) from error


def _settings_of(method: str) -> list[str]:
    return ["name", "tuned", "title", "settings", *ADAPTATION_DEFAULTS, *METHODS[method].options()]


def _as_grid(setting: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        return [value]
    if setting in _LIST_VALUED and not (value and isinstance(value[0], list)):
        return [value]
    return value


def _choice(document: Document, path: KeyPath, table: Any, kind: type[T]) -> T:
    """A dataclass from a table with its fields."""
    fields = [item.name for item in dataclasses.fields(kind)]  # type: ignore[arg-type]
    document.check_keys(path, table, fields, f"[{path[0]}]")
    if not isinstance(table.get("severities", []), list):
        table = {**table, "severities": [table["severities"]]}
    return _located(document, path, kind, table)


def _located(
    document: Document, path: KeyPath, make: Callable[..., T], arguments: Mapping[str, Any]
) -> T:
    """Build something; if a value is refused, blame the line of the first key that it mentions."""
    try:
        return make(**arguments)
    except (ValueError, TypeError) as error:
        message = str(error)
        guilty = next((name for name in arguments if _blames(message, name, arguments)), None)
        raise document.error(path if guilty is None else (*path, guilty), message) from error


def _blames(message: str, name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether an error speaks of a key, or shows one of its texts."""
    value = arguments[name]
    shown = value if isinstance(value, list) else [value]
    if any(isinstance(text, str) and repr(text) in message for text in shown):
        return True
    said = re.search(rf"\b{name.removesuffix('s')}", message)
    return name != "name" and said is not None  # "name" is a word of many errors


def _list_of(
    document: Document,
    path: KeyPath,
    kind: type | tuple[type, ...],
    default: list[Any] | None = None,
) -> list[Any]:
    given = document.values.get(str(path[0]), default)
    if not isinstance(given, list) or not all(isinstance(item, kind) for item in given):
        raise document.error(path, f"{path[0]} is a list; got {given!r}.")
    if not given:
        raise document.error(path, f"{path[0]} must not be empty.")
    return given
