"""The look of every figure: one style, one colour per method, no global state."""

from __future__ import annotations

import colorsys
import io
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib.colors
from matplotlib.artist import Artist
from matplotlib.axes import Axes
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

OTHER_COLORS = (
    "#3f6f5f", "#d4a017", "#93506e", "#2e9fb0", "#8c5a3c", "#8fae3c",
    "#6a3d9a", "#d98f8f", "#1f4e8c", "#a4883a", "#5f6a7a", "#5b8def",
)  # fmt: skip
"""Colours for rows that are no methods of the library."""

METHOD_MARKERS = dict(zip(METHOD_COLORS, "xvsDP^ho", strict=True))
"""One shape per method, for those who cannot tell the colours apart."""

FORMATS = ("png", "svg", "pdf")

PAGE_WIDTH, PHONE_WIDTH = 8.1, 3.9
"""Inches that a figure is wide on a page, and on one as narrow as a phone."""

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


def palette(names: Iterable[str]) -> dict[str, str]:
    """One colour per row, to be shared by all figures of a page: a method's own, or the next one free.

    >>> palette(["entropy", "mine", "conjugate"])
    {'entropy': '#3f7fbf', 'mine': '#3f6f5f', 'conjugate': '#c0392b'}
    """
    free = _free_colors()
    return {name: METHOD_COLORS.get(name) or next(free) for name in dict.fromkeys(names)}


def _free_colors() -> Iterator[str]:
    """The colours for others, then hues a golden section apart, which never repeat."""
    yield from OTHER_COLORS
    hue = 0.0
    while True:
        hue = (hue + 0.618034) % 1
        yield matplotlib.colors.to_hex(colorsys.hls_to_rgb(hue, 0.45, 0.5))


def marker_of(name: str) -> str:
    """The marker of the method that a row is about (`hard`, or `hard, rate 0.1`), a dot for anything else."""
    return METHOD_MARKERS.get(name.partition(",")[0], "o")


def is_front(name: str) -> bool:
    """Whether a curve is drawn over the others, and broader."""
    return name == "conjugate"


def page_width(*, narrow: bool) -> float:
    """The width in inches of a figure, for a page or for one as narrow as a phone."""
    return PHONE_WIDTH if narrow else PAGE_WIDTH


def wrapped(text: str, width: float, *, lines: int = 3) -> str:
    """Text on as many lines as `width` inches need; what does not fit on `lines` of them ends in dots."""
    return textwrap.fill(text, max(8, int(width / 0.1)), max_lines=lines, placeholder=" …")


def finish_grid(panels: Sequence[Axes], shown: int, across: int) -> None:
    """Hide the panels of a grid that are left over; the lowest of each column has the numbers of its axis."""
    for panel in panels[shown:]:
        panel.set_visible(False)
    for panel in panels[max(0, shown - across) : shown]:
        panel.tick_params(labelbottom=True)


def legend_above(figure: Figure, entries: Mapping[str, Artist], *, most: int) -> None:
    """The legend over all panels, up to `most` names side by side, and no wider than the figure."""
    width = figure.get_figwidth()
    names = [wrapped(name, width - 0.6) for name in entries]
    longest = max((len(line) for name in names for line in name.splitlines()), default=0)
    columns = max(1, min(most, len(names), int(width / (0.48 + 0.075 * longest))))
    if 0 < len(names) % columns < columns / 2:  # nearly nothing in the last row: fill all alike
        rows = -(-len(names) // columns)
        columns = -(-len(names) // rows)
    figure.legend(list(entries.values()), names, loc="outside upper center", ncols=columns)


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
    with styled(), warnings.catch_warnings():
        # The letters come from the reader's fonts, ours only measure them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="svg", metadata=_undated("svg"))
    text = buffer.getvalue()
    return re.sub(r'(id="|url\(#|href="#)', rf"\1{prefix}", text[text.index("<svg") :])


def _undated(suffix: str) -> dict[str, None] | None:
    """Metadata without dates, so that equal figures are equal files."""
    return {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix)
