"""A process that times what it is asked to: some settings, as malloc's, hold for a whole process."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from common.measuring import Ways, cpu_seconds


class Worker:
    """Ways made by `make(*arguments)` in a process of its own, run one at a time when asked.

    With `source`, the folder that holds another version of the package, the ways are that version's.
    """

    def __init__(
        self, make: Callable[..., Ways], *arguments: object, source: str | None = None
    ) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        place = (make.__module__, make.__name__, source)
        self._process = context.Process(target=_serve, args=(theirs, place, arguments), daemon=True)
        self._process.start()
        theirs.close()
        self.names: list[str] = self._answer()

    def seconds(self, name: str) -> float:
        """CPU seconds of one run."""
        self._pipe.send(name)
        found: float = self._answer()
        return found

    def _answer(self) -> Any:
        try:
            kind, answer = self._pipe.recv()
        except EOFError:
            raise SystemExit(
                "a process that was to be timed died; is there enough memory?"
            ) from None
        if kind == "failed":
            raise SystemExit(answer)
        return answer

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._pipe.close()
        self._process.join()


def _serve(
    pipe: Connection, place: tuple[str, str, str | None], arguments: tuple[object, ...]
) -> None:
    module, name, source = place
    try:
        if source is not None:
            _use_version(source, module)
        ways: Ways = getattr(importlib.import_module(module), name)(*arguments)
        pipe.send(("fine", list(ways)))
        while True:
            pipe.send(("fine", cpu_seconds(ways[pipe.recv()])))
    except EOFError:
        pass  # nobody asks any more
    except Exception:
        pipe.send(("failed", traceback.format_exc()))


def _use_version(source: str, module: str) -> None:
    """Forget the package that the script has brought along, and find the other one."""
    sys.path.insert(0, source)
    for loaded in list(sys.modules):
        if loaded == module or loaded.partition(".")[0] == "fenchel":
            del sys.modules[loaded]
