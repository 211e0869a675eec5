"""Files of results: names made of titles, texts, figures in every format."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure


def slug(title: str) -> str:
    """A title as a part of a file's name.

    >>> slug("CIFAR-10-C, T = 1")
    'cifar-10-c-t-1'
    """
    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))


def write_files(texts: Mapping[Path, str]) -> list[Path]:
    """Write every text to its file; the files are returned."""
    from fenchel.files import write_atomically

    for file, text in texts.items():
        write_atomically(file, text.encode())
    return list(texts)


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Save the figure in every format, beside one another; the files are returned."""
    from fenchel.report.style import FORMATS, save

    files = [stem.with_suffix(f".{suffix}") for suffix in FORMATS]
    for file in files:
        save(figure, file)
    return files
