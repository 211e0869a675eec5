"""The look of every figure: one style, one colour per method, no global state."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

METHOD_COLORS = {
    "source": "#8a8f98",
    "bn": "#b59f7b",
    "entropy": "#3f7fbf",
    "hard": "#c7762b",
    "soft": "#7d6bb0",
    "robust": "#4f9d8f",
    "memo": "#c26c95",
    "conjugate": "#c0392b",
}
"""One colour per method: that of the conjugate stands out, the others are easy to tell apart."""

OTHER_COLORS = ("#3f6f5f", "#5b8def", "#a4883a", "#93506e", "#5f6a7a", "#2e9fb0")
"""Colours for names that are no methods of the library."""

METHOD_MARKERS = dict(zip(METHOD_COLORS, "xvsDP^ho", strict=True))
"""One shape per method, for those who cannot tell the colours apart."""

FORMATS = ("png", "svg", "pdf")

_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#6b7079",
    "axes.labelcolor": "#33363b",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e5e8",
    "grid.linewidth": 0.6,
    "xtick.color": "#4a4e55",
    "ytick.color": "#4a4e55",
    "legend.frameon": False,
    "lines.linewidth": 1.7,
    "figure.dpi": 150,
    "text.parse_math": False,
    "savefig.bbox": "tight",
    "svg.fonttype": "none",
    "svg.hashsalt": "fenchel",
    "pdf.fonttype": 42,
}


def color_of(name: str, position: int = 0) -> str:
    """The colour of a method; of anything else, one by its position among the names shown."""
    return METHOD_COLORS.get(name, OTHER_COLORS[position % len(OTHER_COLORS)])


def marker_of(name: str) -> str:
    """The marker of a method, a dot for anything else."""
    return METHOD_MARKERS.get(name, "o")


def is_front(name: str) -> bool:
    """Whether a curve is drawn over the others, and broader."""
    return name == "conjugate"


@contextmanager
def styled() -> Iterator[None]:
    """Draw in our style; the caller's matplotlib settings come back afterwards."""
    with matplotlib.rc_context(_STYLE):
        yield


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the file's suffix, the same bytes every time."""
    suffix = path.suffix.lstrip(".").lower()
    if suffix not in FORMATS:
        raise ValueError(
            f"figures are written as {', '.join(FORMATS)}; got {path.name!r}. Choose such a suffix."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with styled():
        figure.savefig(path, format=suffix, metadata=_undated(suffix))


def as_svg(figure: Figure, prefix: str = "") -> str:
    """The figure as an SVG element, to stand inside a page; `prefix` keeps its ids apart."""
    buffer = io.StringIO()
    with styled():
        figure.savefig(buffer, format="svg", metadata=_undated("svg"))
    text = buffer.getvalue()
    return re.sub(r'(id="|url\(#|href="#)', rf"\1{prefix}", text[text.index("<svg") :])


def _undated(suffix: str) -> dict[str, None] | None:
    """Metadata without dates, so that equal figures are equal files."""
    return {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix)
