"""What a training run shows: a live bar in a terminal, one line per epoch anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fenchel.progress import Bar, progress


class Reporter:
    """Receives every step and every epoch of a run; this base class shows nothing."""

    def step(self, images: int) -> None:
        """One more step of `images` images is done."""

    def note(self, loss: float, accuracy: float) -> None:
        """Means over the epoch so far."""

    def epoch(self, number: int, row: dict[str, float]) -> None:
        """Epoch `number` (from 1) ended with the metrics in `row`."""

    @property
    def wants_notes(self) -> bool:
        """Whether `note` is of use (reading the numbers costs a device synchronisation)."""
        return False


class LineReporter(Reporter):
    """One line per epoch on standard error, with the speed and the time left."""

    def __init__(self, epochs: int, steps_left: int) -> None:
        self._epochs, self._steps_left = epochs, steps_left
        self._started = time.monotonic()
        self._steps = self._images = 0

    def step(self, images: int) -> None:
        """Count, for the speed and the time left."""
        self._steps += 1
        self._images += images

    def epoch(self, number: int, row: dict[str, float]) -> None:
        """Print the line."""
        elapsed = time.monotonic() - self._started
        speed = self._images / max(elapsed, 1e-9)
        left = elapsed / max(1, self._steps) * (self._steps_left - self._steps)
        held_out = row.get("held_out_accuracy")
        parts = [
            f"loss {row['train_loss']:.4f}",
            f"train accuracy {100 * row['train_accuracy']:.2f} %",
            *([] if held_out is None else [f"held-out accuracy {100 * held_out:.2f} %"]),
            f"{speed:.0f} images/s",
            f"{format_seconds(left)} left",
        ]
        self.line(f"epoch {number}/{self._epochs}: {', '.join(parts)}")

    def line(self, text: str) -> None:
        """Write one line."""
        print(text, file=sys.stderr, flush=True)


class BarReporter(Reporter):
    """A live bar over all steps left."""

    wants_notes = True

    def __init__(self, bar: Bar, epochs: int, epoch: int) -> None:
        self._bar, self._epochs, self._epoch = bar, epochs, epoch

    def step(self, images: int) -> None:
        """Move the bar."""
        self._bar.advance()

    def note(self, loss: float, accuracy: float) -> None:
        """Show the epoch so far beside the bar."""
        count = f"epoch {self._epoch + 1}/{self._epochs}"
        self._bar.note(f"{count}, loss {loss:.3f}, accuracy {100 * accuracy:.1f} %")

    def epoch(self, number: int, row: dict[str, float]) -> None:
        """Turn to the next epoch."""
        self._epoch = number


@contextmanager
def reporter(epochs: int, first_epoch: int, steps_left: int) -> Iterator[Reporter]:
    """The reporter that suits standard error."""
    if not sys.stderr.isatty():
        yield LineReporter(epochs, steps_left)
        return
    with progress("training", total=steps_left) as bar:
        yield BarReporter(bar, epochs, first_epoch)


def format_seconds(seconds: float) -> str:
    """A duration in one or two units.

    >>> format_seconds(42), format_seconds(200), format_seconds(7300)
    ('42 s', '3 min 20 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
