"""What every verb shares: the two consoles, exit codes, and how a mistake is told."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console, RenderableType
from rich.measure import measure_renderables
from rich.text import Text

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
