"""A process that times what it is asked to: some settings, as malloc's, hold for a whole process."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from common.measuring import Ways, cpu_seconds


class Worker:
    """Ways made by `make(*arguments)` in a process of its own, run one at a time when asked."""

    def __init__(self, make: Callable[..., Ways], *arguments: object) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, arguments), daemon=True)
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


def _serve(pipe: Connection, make: Callable[..., Ways], arguments: tuple[object, ...]) -> None:
    try:
        ways = make(*arguments)
        pipe.send(("fine", list(ways)))
        while True:
            pipe.send(("fine", cpu_seconds(ways[pipe.recv()])))
    except EOFError:
        pass  # nobody asks any more
    except Exception:
        pipe.send(("failed", traceback.format_exc()))
