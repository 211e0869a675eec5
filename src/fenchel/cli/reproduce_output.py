"""What every kind of `fenchel reproduce` says and writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from fenchel.cli.console import err

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from fenchel.bench.presets.available import PresetPlan


def note(text: str) -> None:
    """A line on standard error."""
    tell(err, [text])


def tell(console: Console, lines: Sequence[str]) -> None:
    """Lines as they are, without markup."""
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def missing_lines(planned: PresetPlan) -> list[str]:
    """What is not here, for which lines, and how to get it."""
    told = []
    for item, lines in planned.missing.items():
        told += [f"missing: {item.what}, for {'; '.join(lines)}", f"    get it: {item.how}"]
    return told


def slug(title: str) -> str:
    """A title as a part of a file's name.

    >>> slug("CIFAR-10-C, T = 1")
    'cifar-10-c-t-1'
    """
    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))


def save_figure(figure: Figure, stem: Path) -> None:
    """The figure in every format, beside one another."""
    from fenchel.report.style import FORMATS, save

    for suffix in FORMATS:
        save(figure, stem.with_suffix(f".{suffix}"))
