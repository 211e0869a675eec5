"""Objects of the user's own code by name: `path/to/file.py:object` or `package.module:object`."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from fenchel.names import unknown
from fenchel.plugins import beside, blaming, load_plugin

_REFERENCE = re.compile(
    r"(?P<place>.+\.py|[A-Za-z_][\w.]*):(?P<name>[A-Za-z_]\w*)(?::(?P<arguments>[^:=]+=.*))?"
)


@dataclass(frozen=True)
class Reference:
    """`FILE.py:NAME` or `MODULE:NAME`; `arguments` is what follows as `:key=value`."""

    place: str
    name: str
    arguments: str = ""

    @property
    def is_file(self) -> bool:
        """Whether a file is named, not a module."""
        return self.place.endswith(".py")

    @property
    def label(self) -> str:
        """For records, in which the place of a file does not count: `file.py:NAME`, `module:NAME`."""
        return f"{Path(self.place).name if self.is_file else self.place}:{self.name}"

    def __str__(self) -> str:
        tail = f":{self.arguments}" if self.arguments else ""
        return f"{self.place}:{self.name}{tail}"

    def within(self, folder: Path) -> Reference:
        """The same with the file looked for in `folder`, and its whole path written out."""
        if not self.is_file:
            return self
        path = (folder / Path(self.place).expanduser()).resolve()
        return Reference(str(path), self.name, self.arguments)

    @cached_property
    def file(self) -> Path | None:
        """The file of the code; None for a module without one."""
        if self.is_file:
            return Path(self.place).expanduser().resolve()
        _search_here()
        try:
            found = importlib.util.find_spec(self.place)
        except ImportError:
            return None
        return Path(found.origin) if found and found.has_location and found.origin else None

    def load(self) -> Any:
        """Run the file, once in this process, or import the module, and look the name up."""
        module = self._of_file() if self.is_file else _imported(self.place)
        try:
            return getattr(module, self.name)
        except AttributeError:
            known = (name for name in vars(module) if name[0] != "_")
            raise unknown(f"name in {self.place}:", self.name, known) from None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within the block its code runs: it finds the files beside it, and is blamed if it fails."""
        with ExitStack() as stack:
            if self.file is not None:
                stack.enter_context(blaming(self.file))
                if self.is_file:
                    stack.enter_context(beside(self.file))
            yield

    def _of_file(self) -> ModuleType:
        if not Path(self.place).expanduser().is_file():
            raise FileNotFoundError(
                f"{self.place} must be a Python file; there is none. Check the path."
            )
        return load_plugin(self.place).load()


def read_reference(text: str) -> Reference | None:
    """The reference that a text is, or None: `poly:epsilon=6` and `runs/poly` are none.

    >>> read_reference("nets/mine.py:build")
    Reference(place='nets/mine.py', name='build', arguments='')
    """
    match = _REFERENCE.fullmatch(text)
    if match is None:
        return None
    return Reference(match["place"], match["name"], match["arguments"] or "")


def located(text: str, folder: Path) -> str:
    """`text` with the file that it refers to written out as a whole path; anything else as it is."""
    reference = read_reference(text)
    return text if reference is None else str(reference.within(folder))


def label_of(text: str) -> str:
    """`text` for records: a file by its name alone, anything else as it is."""
    reference = read_reference(text)
    return text if reference is None or not reference.is_file else reference.label


def load_object(text: str) -> Any:
    """Import what `FILE.py:NAME` or `MODULE:NAME` names; the current folder is searched as well."""
    reference = read_reference(text)
    if reference is None or reference.arguments:
        raise ValueError(
            f"an object of your code is written MODULE:NAME or FILE.py:NAME; got {text!r}."
        )
    return reference.load()


def _imported(name: str) -> ModuleType:
    _search_here()
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise ImportError(
            f"no module {name!r} in this environment or in the current folder. Check the name, "
            "install its package, or write FILE.py:NAME."
        )
    with blaming(found.origin or name):
        return importlib.import_module(name)


def _search_here() -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
