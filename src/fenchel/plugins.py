"""Plugins: plain Python files that register losses, objectives, methods and more of the user's own.

A file is named by its content: loaded twice it runs once, changed it is another plugin. Results remember
the digest of every plugin they depend on. What goes wrong in the user's own code is told in one line.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType

_LOADED: dict[str, Plugin] = {}
_RUNNING = threading.local()
_ONE_AT_A_TIME = threading.RLock()


class OwnCodeError(ImportError, ValueError):
    """The user's own code failed; the message says in which file, on which line, and what it said."""


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

    def load(self) -> ModuleType:
        """Run the code, once in this process; the module that it made."""
        with _ONE_AT_A_TIME:
            if self.digest not in _LOADED:
                _run(self)
                _LOADED[self.digest] = self
            return sys.modules[self._module_name]

    @property
    def _module_name(self) -> str:
        return f"fenchel_plugin_{self.digest}"


def load_plugin(path: str | Path) -> Plugin:
    """Run a plugin file, once in this process; whatever it registers is then known by name.

    >>> import tempfile
    >>> code = '''
    ... from dataclasses import dataclass
    ... import fenchel
    ...
    ... @fenchel.register("louder-entropy")
    ... @dataclass(frozen=True)
    ... class LouderEntropy(fenchel.Objective):
    ...     "Twice the entropy."
    ...     def value(self, h):
    ...         return 2 * fenchel.Entropy()(h)
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "my_method.py"
    ...     _ = file.write_text(code)
    ...     plugin = load_plugin(file)
    >>> plugin.name
    'my_method.py'
    """
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
    name = plugin._module_name
    spec = importlib.util.spec_from_file_location(name, plugin.path)
    if spec is None:
        raise ImportError(f"{plugin.path} cannot be imported as a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up there
    try:
        with _marked(plugin), blaming(plugin.path), beside(plugin.path):
            exec(compile(plugin.source, plugin.path, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise


@contextmanager
def blaming(file: str | Path) -> Iterator[None]:
    """Whatever goes wrong within the block, where code of `file` runs, is told in one line."""
    try:
        yield
    except OwnCodeError:
        raise
    except (Exception, SystemExit) as error:
        said = " ".join(str(error).split()) or "nothing"
        raise OwnCodeError(
            f"{_place(error, Path(file))}: your code failed with {type(error).__name__}: "
            f"{said.removesuffix('.')}. Mend it; FENCHEL_DEBUG=1 shows the traceback."
        ) from error


def _place(error: BaseException, file: Path) -> str:
    """The file and line of the user's code that failed: the deepest in the folder of `file`."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{shown(Path(error.filename))}, line {error.lineno}"
    frames = [
        (Path(frame.f_code.co_filename), line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    own = [(path, line) for path, line in frames if path.parent == file.parent]
    return f"{shown(own[-1][0])}, line {own[-1][1]}" if own else shown(file)


def shown(file: Path) -> str:
    """A path as people write it: relative to the current folder if it lies below it."""
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)


@contextmanager
def _marked(plugin: Plugin) -> Iterator[None]:
    _RUNNING.stack = [*getattr(_RUNNING, "stack", []), plugin]
    try:
        yield
    finally:
        _RUNNING.stack = _RUNNING.stack[:-1]


@contextmanager
def beside(file: str | Path) -> Iterator[None]:
    """Within the block, code of `file` may import the files beside it."""
    folder = str(Path(file).parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
