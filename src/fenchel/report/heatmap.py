"""Error by learning rate and temperature, one panel per method and optimiser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fenchel.report.style import PHONE_WIDTH, styled, wrapped

Grid = Mapping[tuple[float, float], float]
"""The mean error in percent, by (learning rate, temperature)."""

_LOW_IS_DARK = LinearSegmentedColormap.from_list(
    "errors", ["#1f3a5f", "#3f7fbf", "#a9c9e8", "#f4efe6", "#e9b48a", "#b5533c"]
)

_LUMINANCE = (0.299, 0.587, 0.114)


def heat_map_figure(grids: Mapping[str, Grid], *, narrow: bool = False) -> Figure:
    """One panel per name, all on one scale; the lowest error of each is framed.

    The scale ends at the 80th percentile, so that runs that diverged do not wash out the rest.
    """
    values = np.array([value for grid in grids.values() for value in grid.values()])
    if not np.isfinite(values).any():
        raise ValueError("a heat map needs at least one finite error; got none.")
    limits = (float(np.nanmin(values)), float(np.nanquantile(values, 0.8)))
    across = 1 if narrow else min(3, len(grids))
    down = -(-len(grids) // across)
    rates = max(len({rate for rate, _ in grid}) for grid in grids.values())
    with styled():
        width = PHONE_WIDTH if narrow else max(3.4, (0.62 * rates + 0.7) * across + 0.8)
        figure = Figure(figsize=(width, 2.4 * down + 0.2), layout="constrained")
        panels = figure.subplots(down, across, squeeze=False).ravel()
        for panel, (name, grid) in zip(panels, grids.items(), strict=False):
            image = _draw(panel, grid, limits)
            panel.set_title(wrapped(name, width / across - 0.8))
        for panel in panels[len(grids) :]:
            panel.set_visible(False)
        bar = figure.colorbar(image, ax=list(panels), extend="max", shrink=0.9)
        bar.set_label("error (%)")
        bar.outline.set_visible(False)
        figure.supxlabel("learning rate", fontsize=9)
        figure.supylabel("temperature", fontsize=9)
    return figure


def _draw(panel: Axes, grid: Grid, limits: tuple[float, float]) -> Any:
    rates = sorted({rate for rate, _ in grid})
    temperatures = sorted({temperature for _, temperature in grid})
    errors = np.array([[grid.get((r, t), np.nan) for r in rates] for t in temperatures])
    low, high = limits
    image = panel.imshow(
        errors,
        origin="lower",
        aspect="auto",
        cmap=_LOW_IS_DARK,
        vmin=low,
        vmax=max(high, low + 1e-9),
    )
    for (row, column), error in np.ndenumerate(errors):
        if np.isfinite(error):
            shade = image.cmap(image.norm(error))[:3]
            ink = "white" if np.dot(shade, _LUMINANCE) < 0.5 else "#22252a"
            panel.text(column, row, f"{error:.1f}", ha="center", va="center", size=7, color=ink)
    if np.isfinite(errors).any():
        row, column = np.unravel_index(np.nanargmin(errors), errors.shape)
        frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="#c0392b", lw=2)
        panel.add_patch(frame)
    panel.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
    panel.set_yticks(range(len(temperatures)), [f"{t:g}" for t in temperatures])
    panel.tick_params(length=0)
    panel.grid(visible=False)
    for spine in panel.spines.values():
        spine.set_visible(False)
    return image
