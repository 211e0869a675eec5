"""Online error and task loss against batches, one panel per shift, one colour per method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fenchel.report.layout import to_csv
from fenchel.report.style import color_of, is_front, styled
from fenchel.report.tables import Measurement

Curves = Mapping[tuple[str, str], Sequence[Sequence[float]]]
"""Curves by (method, shift), one per seed."""


def online_error_figure(curves: Curves, methods: Sequence[str], shifts: Sequence[str]) -> Figure:
    """Error over the stream so far: mean over seeds, one standard deviation for the conjugate."""
    return curves_figure(curves, methods, shifts, "error so far (%)")


def task_loss_figure(curves: Curves, methods: Sequence[str], shifts: Sequence[str]) -> Figure:
    """The training loss at the true labels, batch by batch; never seen by the adaptation."""
    return curves_figure(curves, methods, shifts, "task loss of the batch")


def curves_figure(
    curves: Curves, methods: Sequence[str], shifts: Sequence[str], quantity: str
) -> Figure:
    """One panel per shift; what has not been measured is left out."""
    with styled():
        across = min(3, len(shifts))
        down = -(-len(shifts) // across)
        size = (2.7 * across, 2.2 * down + 0.5) if len(shifts) > 1 else (4.6, 3.3)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(down, across, sharex=True, squeeze=False).ravel()
        shown: dict[str, Artist] = {}
        for panel, shift in zip(panels, shifts, strict=False):
            for position, method in enumerate(methods):
                if runs := curves.get((method, shift)):
                    shown[method] = _draw(panel, runs, method, position)
            panel.set_title(shift.replace("_", " "))
            panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        for panel in panels[len(shifts) :]:
            panel.set_visible(False)
        figure.supxlabel("batches", fontsize=9)
        figure.supylabel(quantity, fontsize=9)
        names = [method for method in methods if method in shown]
        columns = min(4 * across, len(names)) or 1
        handles = [shown[name] for name in names]
        figure.legend(handles, names, loc="outside upper center", ncols=columns)
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


def _draw(panel: Axes, runs: Sequence[Sequence[float]], method: str, position: int) -> Artist:
    """Draw the mean of the runs up to the length of the shortest; the highlighted method gets a band."""
    shortest = min(map(len, runs))
    values = np.array([run[:shortest] for run in runs])
    batches = np.arange(1, shortest + 1)
    mean, front, color = values.mean(0), is_front(method), color_of(method, position)
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
