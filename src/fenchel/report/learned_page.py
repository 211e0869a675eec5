"""The experiment on meta-learned objectives as one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure

from fenchel.models.files import write_atomically
from fenchel.report.html import render
from fenchel.report.layout import Layout
from fenchel.report.style import as_svg


def write_learned_page(
    out: Path,
    *,
    tables: Sequence[Layout],
    figure: Figure,
    verdict: Sequence[str],
    protocol: Mapping[str, str],
    notes: Sequence[str] = (),
) -> None:
    """Write the page to `out`, whole or not at all; equal results give equal bytes."""
    text = render(
        "learned.html",
        script="sort.js",
        tables=tables,
        figure=Markup(as_svg(figure, "learned-")),
        verdict=verdict,
        protocol=protocol,
        notes=notes,
    )
    write_atomically(out, text.encode())
