"""Error by corruption: a line a corruption, a mark a method, so that fifteen of them stay readable."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fenchel.report.distances import Rows, panels_of
from fenchel.report.style import color_of, is_front, marker_of, styled
from fenchel.report.tables import ErrorTable


def error_by_corruption_figure(table: ErrorTable) -> Figure:
    """Means with one standard deviation over seeds; the mean over the corruptions at the bottom.

    Methods that adapt lie close together: where the conjugate is among them, a second panel shows how far
    the others are from it, seed by seed.
    """
    names = table.headings if len(table.columns) > 1 else table.columns
    heights = [-float(k) - (0.4 if name == "mean" else 0.0) for k, name in enumerate(names)]
    rows = {method: table.row(method)[: len(names)] for method in table.rows}
    panels = panels_of(rows)
    with styled():
        size = (4.1 * len(panels) + 1.2, 0.32 * len(names) + 1.3)
        figure = Figure(figsize=size, layout="constrained")
        for axes, (label, shown) in zip(
            figure.subplots(1, len(panels), sharey=True, squeeze=False)[0],
            panels.items(),
            strict=True,
        ):
            _draw(axes, shown, list(rows), heights)
            axes.set_xlabel(label)
            if names[-1] == "mean":
                axes.axhline((heights[-1] + heights[-2]) / 2, color="#6b7079", linewidth=0.8)
        for axes in figure.axes[1:]:
            axes.axvline(0, color=color_of("conjugate"), linewidth=1.4, zorder=2)
        first = figure.axes[0]
        first.set_yticks(heights, [name.replace("_", " ") for name in names])
        first.set_ylim(heights[-1] - 0.6, 0.6)
        figure.legend(*first.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def _draw(axes: Axes, rows: Rows, methods: Sequence[str], heights: Sequence[float]) -> None:
    axes.hlines(heights, 0, 1, transform=axes.get_yaxis_transform(), color="#eceef0", zorder=0)
    for position, method in enumerate(methods):
        # Marks of one line stand a little below one another, so that equal errors do not hide each other.
        beside = 0.26 - 0.52 * (position + 0.5) / len(methods)
        measured = [
            (cell.mean, height + beside, cell.spread or 0.0)
            for cell, height in zip(rows.get(method, ()), heights, strict=False)
            if cell.values
        ]
        if not measured:
            continue
        means, where, spreads = zip(*measured, strict=True)
        axes.errorbar(
            means,
            where,
            xerr=spreads,
            linestyle="none",
            marker=marker_of(method),
            markersize=5.5 if is_front(method) else 4,
            color=color_of(method, position),
            elinewidth=1,
            alpha=1.0 if is_front(method) else 0.85,
            zorder=4 if is_front(method) else 3,
            label=method,
        )
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
