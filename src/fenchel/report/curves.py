"""Online error and task loss against batches, one panel per shift, one colour per method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fenchel.report.layout import to_csv
from fenchel.report.style import (
    finish_grid,
    is_front,
    legend_above,
    page_width,
    palette,
    styled,
    wrapped,
)
from fenchel.report.tables import Measurement

Curves = Mapping[tuple[str, str], Sequence[Sequence[float]]]
"""Curves by (method, shift), one per seed."""


Colors = Mapping[str, str]
"""The colour of every row of a page, so that its figures agree."""


def online_error_figure(
    curves: Curves,
    methods: Sequence[str],
    shifts: Sequence[str],
    *,
    colors: Colors | None = None,
    narrow: bool = False,
) -> Figure:
    """Error over the stream so far: mean over seeds, one standard deviation for the conjugate."""
    return curves_figure(curves, methods, shifts, "error so far (%)", colors=colors, narrow=narrow)


def task_loss_figure(
    curves: Curves,
    methods: Sequence[str],
    shifts: Sequence[str],
    *,
    colors: Colors | None = None,
    narrow: bool = False,
) -> Figure:
    """The training loss at the true labels, batch by batch; never seen by the adaptation."""
    quantity = "task loss of the batch"
    return curves_figure(curves, methods, shifts, quantity, colors=colors, narrow=narrow)


def curves_figure(
    curves: Curves,
    methods: Sequence[str],
    shifts: Sequence[str],
    quantity: str,
    *,
    colors: Colors | None = None,
    narrow: bool = False,
) -> Figure:
    """One panel per shift, together as wide as the page; what has not been measured is left out.

    colors: one per method, by default those of `palette(methods)`.
    narrow: for a page as narrow as a phone.
    """
    colors = colors or palette(methods)
    width = page_width(narrow=narrow)
    with styled():
        across = min(2 if narrow else 3, len(shifts))
        down = -(-len(shifts) // across)
        height = 2.2 * down + 0.5 if len(shifts) > 1 else 3.1
        figure = Figure(figsize=(width, height), layout="constrained")
        panels = figure.subplots(down, across, sharex=True, squeeze=False).ravel()
        shown: dict[str, Artist] = {}
        for panel, shift in zip(panels, shifts, strict=False):
            for method in methods:
                if runs := curves.get((method, shift)):
                    shown[method] = _draw(panel, runs, method, colors[method])
            panel.set_title(wrapped(shift.replace("_", " "), width / across - 0.5))
            panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        finish_grid(list(panels), len(shifts), across)
        figure.supxlabel("batches", fontsize=9)
        figure.supylabel(quantity, fontsize=9)
        legend_above(figure, {name: shown[name] for name in methods if name in shown}, most=12)
    return figure


def curves_csv(curves: Curves) -> str:
    """What a figure of curves shows, in full precision: mean and spread over seeds, by batch."""
    rows = []
    for (method, shift), runs in curves.items():
        for batch, values in enumerate(zip(*runs, strict=False), start=1):
            over_seeds = Measurement(values)
            numbers = (over_seeds.mean, over_seeds.spread, len(values))
            rows.append((method, shift, batch, *numbers))
    return to_csv(("method", "shift", "batch", "mean", "spread", "seeds"), rows)


def _draw(panel: Axes, runs: Sequence[Sequence[float]], method: str, color: str) -> Artist:
    """Draw the mean of the runs up to the length of the shortest; the highlighted method gets a band."""
    shortest = min(map(len, runs))
    values = np.array([run[:shortest] for run in runs])
    batches = np.arange(1, shortest + 1)
    mean, front = values.mean(0), is_front(method)
    (line,) = panel.plot(
        batches,
        mean,
        color=color,
        linewidth=2.2 if front else 1.2,
        zorder=3 if front else 2,
        marker="o" if shortest == 1 else None,
    )
    if front and len(values) > 1:
        spread = values.std(0, ddof=1)
        panel.fill_between(
            batches, mean - spread, mean + spread, color=color, alpha=0.15, linewidth=0
        )
    return line
