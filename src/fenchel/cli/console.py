"""What every verb shares: the two consoles, exit codes, tables and devices, and how a mistake is told."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, RenderableType
from rich.measure import measure_renderables
from rich.text import Text

from fenchel.names import unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fenchel.report.layout import Layout

EXIT_FAILURES = 1

EXIT_USER_MISTAKE = 2

EXIT_HARMFUL = 4

EXIT_INTERRUPTED = 130

WIDEST = 10_000

out = Console()

err = Console(stderr=True)


def report_mistake(message: str) -> None:
    """One red line on standard error, never wrapped or interpreted as markup."""
    err.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)


def note(text: str) -> None:
    """A line on standard error."""
    tell(err, [text])


def tell(console: Console, lines: Sequence[str]) -> None:
    """Lines as they are, without markup."""
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def print_table(table: RenderableType) -> None:
    """Print a table; what goes to a file or a pipe is never cut to a width."""
    if out.is_terminal:
        out.print(table)
        return
    options = out.options.update(max_width=WIDEST)
    width = measure_renderables(out, options, [table]).maximum
    Console(file=out.file, width=width).print(table)


def print_json(value: Any) -> None:
    """Machine-readable output: plain JSON on standard output, nothing else."""
    text = json.dumps(_finite(value), indent=2, sort_keys=False, allow_nan=False)
    print(text, flush=True)  # whoever reads it may wait for it while we go on


def output_for_answers_alone() -> redirect_stdout[TextIO]:
    """In the block, what libraries print, as Ray does of its processes, goes where messages go."""
    return redirect_stdout(sys.stderr)


def _finite(value: Any) -> Any:
    """The value with null for what JSON has no number for: NaN and infinity."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def csv_rows(text: str) -> list[dict[str, Any]]:
    """The rows of a CSV text as JSON has them: numbers are numbers, and what is empty is null.

    >>> csv_rows("method,error\\nsource,12.5\\nbn,\\n")
    [{'method': 'source', 'error': 12.5}, {'method': 'bn', 'error': None}]
    """
    rows = csv.DictReader(io.StringIO(text))
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _plain(text: str) -> Any:
    if text in ("", "nan"):
        return None
    try:
        number = json.loads(text)
    except ValueError:
        return text
    return number if type(number) in (int, float) else text


FORMATS = ("terminal", "markdown", "latex", "csv")

JSON = "json"
"""In place of a format: no table is printed, and the verb prints one JSON document at its end."""


def check_format(form: str) -> None:
    """Refuse an unknown format before any work is done."""
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)


def show_tables(layouts: Iterable[Layout], form: str, numbers: str) -> None:
    """Print tables on standard output, or, as CSV, the numbers behind them; nothing for `JSON`."""
    from fenchel.report.layout import to_latex, to_markdown, to_terminal

    if form == JSON:
        return
    if form == "csv":
        print(numbers, end="")
        return
    for place, layout in enumerate(layouts):
        if place:
            print()
        if form == "terminal":
            print_table(to_terminal(layout))
        else:
            print(to_latex(layout) if form == "latex" else to_markdown(layout), end="")


DEVICES = ("auto", "cpu", "cuda", "mps")


def pick_device(device: str) -> str:
    """The device to compute on; `auto` is a GPU where there is one. `cuda:1` names one of several."""
    import torch

    kind = device.partition(":")[0]
    if kind not in DEVICES:
        raise unknown("device", device, DEVICES)
    present = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if kind == "auto":
        return next(name for name in ("cuda", "mps", "cpu") if present[name])
    if not present[kind]:
        raise ValueError(
            f"the device must be present; there is no {device} here. Use --device cpu, or auto."
        )
    return device
