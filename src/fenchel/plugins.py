"""Plugins: plain Python files that register losses, objectives, methods and more of the user's own.

A file is named by its content: loaded twice it runs once, changed it is another plugin. Results remember
the digest of every plugin they depend on.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

_LOADED: dict[str, Plugin] = {}
_RUNNING = threading.local()
_ONE_AT_A_TIME = threading.RLock()


@dataclass(frozen=True)
class Plugin:
    """A file as it was read: workers on other machines run the same code."""

    path: str
    source: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """The name of the file, by which records refer to the plugin."""
        return Path(self.path).name

    @cached_property
    def digest(self) -> str:
        """A hash of the content."""
        return hashlib.blake2b(self.source, digest_size=16).hexdigest()

    def load(self) -> None:
        """Run the code, once in this process."""
        with _ONE_AT_A_TIME:
            if self.digest not in _LOADED:
                _run(self)
                _LOADED[self.digest] = self


def load_plugin(path: str | Path) -> Plugin:
    """Run a plugin file, once in this process; whatever it registers is then known by name."""
    file = Path(path).expanduser().resolve()
    if not file.is_file() or file.suffix != ".py":
        raise FileNotFoundError(
            f"a plugin is a Python file such as my_method.py; there is none at {str(path)!r}."
        )
    plugin = Plugin(str(file), file.read_bytes())
    plugin.load()
    return plugin


def load_plugins(paths: Iterable[str | Path]) -> tuple[Plugin, ...]:
    """Run several plugin files, in the order given."""
    return tuple(load_plugin(path) for path in paths)


def loaded_plugins() -> tuple[Plugin, ...]:
    """Every plugin of this process, in the order they were loaded."""
    return tuple(_LOADED.values())


def running_plugin() -> Plugin | None:
    """The plugin whose file is being run by this thread, if one is."""
    stack: list[Plugin] = getattr(_RUNNING, "stack", [])
    return stack[-1] if stack else None


def _run(plugin: Plugin) -> None:
    name = f"fenchel_plugin_{plugin.digest}"
    spec = importlib.util.spec_from_file_location(name, plugin.path)
    if spec is None:
        raise ImportError(f"{plugin.path} cannot be imported as a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up there
    try:
        with _marked(plugin), _beside(Path(plugin.path)):
            exec(compile(plugin.source, plugin.path, "exec"), module.__dict__)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, SyntaxError | ImportError):
            raise ImportError(f"the plugin {plugin.path} cannot be loaded: {error}.") from error
        raise


@contextmanager
def _marked(plugin: Plugin) -> Iterator[None]:
    _RUNNING.stack = [*getattr(_RUNNING, "stack", []), plugin]
    try:
        yield
    finally:
        _RUNNING.stack = _RUNNING.stack[:-1]


@contextmanager
def _beside(file: Path) -> Iterator[None]:
    """Within the block, a plugin may import the files beside it."""
    sys.path.insert(0, str(file.parent))
    try:
        yield
    finally:
        sys.path.remove(str(file.parent))
