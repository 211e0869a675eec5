"""The demo's page: table, curves and sample images in one self-contained file."""

from __future__ import annotations

import base64
import io
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from fenchel.demo.experiment import Outcome
from fenchel.files import write_atomically
from fenchel.report.curves import online_error_figure
from fenchel.report.html import drawn, render
from fenchel.report.style import palette, save
from fenchel.report.tables import ErrorTable, error_table

SCALE = 4


def table_of(outcome: Outcome) -> ErrorTable:
    """Errors by method and shift."""
    return error_table(outcome.errors, outcome.methods, outcome.shifts)


def write_page(outcome: Outcome, out: Path) -> Path:
    """Write `report.html` and `curves.png` into `out`; the path of the page."""
    # The source errs so much more than the rest that their curves would merge on its scale.
    shown = [method for method in outcome.methods if method != "source"]
    colors = palette(outcome.methods)
    draw = partial(online_error_figure, outcome.curves, shown, outcome.shifts, colors=colors)
    save(draw(), out / "curves.png")
    page = out / "report.html"
    strips = [(name.replace("_", " "), _strip(images)) for name, images in outcome.samples.items()]
    text = render(
        "demo.html",
        table=table_of(outcome),
        clean=outcome.clean_errors,
        curves=drawn(lambda narrow: draw(narrow=narrow), "Error over the stream", "curves-"),
        colors=colors,
        strips=strips,
        protocol=outcome.protocol(),
        verdict=verdict(outcome),
        seconds=outcome.seconds,
    )
    write_atomically(page, text.encode())
    return page


def verdict(outcome: Outcome) -> str:
    """The results in one sentence, made from the numbers alone."""
    table = table_of(outcome)
    means = {name: table.row(name)[-1] for name in table.rows}
    best = min(means, key=lambda name: means[name].mean)
    return (
        f"Mean error over the shifts: source {means['source']} %, batch statistics {means['bn']} %, "
        f"conjugate {means['conjugate']} %; the lowest is {best} with {means[best]} %."
    )


def _strip(images: npt.NDArray[np.uint8]) -> str:
    """A few images side by side, enlarged, as a data address."""
    row = np.concatenate(list(images), axis=1)
    picture = Image.fromarray(row.squeeze(-1) if row.shape[-1] == 1 else row)
    size = (picture.width * SCALE, picture.height * SCALE)
    buffer = io.BytesIO()
    picture.resize(size, Image.Resampling.NEAREST).save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
