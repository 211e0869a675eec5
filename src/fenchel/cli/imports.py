"""Objects of the user's own code by name: `package.module:object` or `path/to/file.py:object`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from fenchel.names import unknown


def load_object(reference: str) -> Any:
    """Import what `reference` names; the current folder is searched as well."""
    place, colon, name = reference.rpartition(":")
    if not colon or not place or not name:
        raise ValueError(
            f"an object of your code is written MODULE:NAME or FILE.py:NAME; got {reference!r}."
        )
    module = _from_file(Path(place)) if place.endswith(".py") else _from_path(place)
    try:
        return getattr(module, name)
    except AttributeError:
        raise unknown(f"name in {place}:", name, (n for n in vars(module) if n[0] != "_")) from None


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"{path} must be a Python file; there is none.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported as a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.resolve().parent))
    spec.loader.exec_module(module)
    return module


def _from_path(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise ImportError(
            f"no module {name!r} in this environment or in the current folder. Check the name, "
            "install its package, or write FILE.py:NAME."
        ) from None
