"""What every verb shares: the two consoles, exit codes, tables and devices, and how a mistake is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.measure import measure_renderables
from rich.text import Text

from fenchel.names import unknown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fenchel.report.layout import Layout

EXIT_FAILURES = 1

EXIT_USER_MISTAKE = 2

EXIT_INTERRUPTED = 130

WIDEST = 10_000

out = Console()

err = Console(stderr=True)


def report_mistake(message: str) -> None:
    """One red line on standard error, never wrapped or interpreted as markup."""
    err.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)


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
    print(json.dumps(value, indent=2, sort_keys=False))


FORMATS = ("terminal", "markdown", "latex", "csv")


def check_format(form: str) -> None:
    """Refuse an unknown format before any work is done."""
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)


def show_tables(layouts: Iterable[Layout], form: str, numbers: str) -> None:
    """Print tables on standard output, or, as CSV, the numbers behind them."""
    from fenchel.report.layout import to_latex, to_markdown, to_terminal

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
