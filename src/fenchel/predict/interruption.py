"""Ctrl-C and SIGTERM end a run between two batches, so that nothing that was computed is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Interruption:
    """Whether somebody wants the run to end, and which signal said so."""

    signal: int | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of a program that ends on the signal: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.signal or 0)

    def __bool__(self) -> bool:
        return self.signal is not None


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """In the block, the first Ctrl-C or SIGTERM is noted; a second Ctrl-C ends the program at once."""
    noted = Interruption()
    if threading.current_thread() is not threading.main_thread():  # only there signals arrive
        yield noted
        return

    def note(number: int, frame: FrameType | None) -> None:
        if noted and number == signal.SIGINT:
            raise KeyboardInterrupt
        noted.signal = number

    before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
