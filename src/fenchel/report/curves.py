"""Online error against batches, one panel a shift, one colour a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from fenchel.report.style import METHOD_COLORS, styled

Curves = Mapping[tuple[str, str], Sequence[Sequence[float]]]
"""By (method, shift): a curve a seed."""


def online_error_figure(curves: Curves, methods: Sequence[str], shifts: Sequence[str]) -> Figure:
    """Mean over seeds, with a band of one standard deviation for the conjugate."""
    with styled():
        across = min(3, len(shifts))
        down = -(-len(shifts) // across)
        figure = Figure(figsize=(2.7 * across, 2.2 * down + 0.5), layout="constrained")
        panels = figure.subplots(down, across, sharex=True, squeeze=False).ravel()
        for panel, shift in zip(panels, shifts, strict=False):
            for method in methods:
                runs = np.array(curves[method, shift])
                batches = np.arange(1, runs.shape[1] + 1)
                front = method == "conjugate"
                panel.plot(
                    batches,
                    runs.mean(0),
                    color=METHOD_COLORS.get(method),
                    linewidth=2.2 if front else 1.2,
                    zorder=3 if front else 2,
                    label=method,
                )
                if front and len(runs) > 1:
                    spread = runs.std(0, ddof=1)
                    low, high = runs.mean(0) - spread, runs.mean(0) + spread
                    panel.fill_between(
                        batches, low, high, color=METHOD_COLORS[method], alpha=0.15, linewidth=0
                    )
            panel.set_title(shift.replace("_", " "))
        for panel in panels[len(shifts) :]:
            panel.set_visible(False)
        figure.supxlabel("batches", fontsize=9)
        figure.supylabel("error so far (%)", fontsize=9)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=min(8, len(labels)))
    return figure
