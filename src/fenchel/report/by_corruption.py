"""Error by corruption: a line a corruption, a mark a method, so that fifteen of them stay readable."""

from __future__ import annotations

from matplotlib.figure import Figure

from fenchel.report.style import color_of, is_front, marker_of, styled
from fenchel.report.tables import ErrorTable


def error_by_corruption_figure(table: ErrorTable) -> Figure:
    """Means with one standard deviation over seeds; the mean over the corruptions at the bottom."""
    names = table.headings if len(table.columns) > 1 else table.columns
    heights = [-float(k) - (0.4 if name == "mean" else 0.0) for k, name in enumerate(names)]
    # Marks of one line stand a little below one another, so that equal errors do not hide each other.
    beside = {
        method: 0.26 - 0.52 * (k + 0.5) / len(table.rows) for k, method in enumerate(table.rows)
    }
    with styled():
        figure = Figure(figsize=(5.6, 0.32 * len(names) + 1.3), layout="constrained")
        axes = figure.subplots()
        axes.hlines(heights, 0, 1, transform=axes.get_yaxis_transform(), color="#eceef0", zorder=0)
        for position, method in enumerate(table.rows):
            measured = [
                (cell.mean, height + beside[method], cell.spread or 0.0)
                for cell, height in zip(table.row(method), heights, strict=False)
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
        if names[-1] == "mean":
            axes.axhline((heights[-1] + heights[-2]) / 2, color="#6b7079", linewidth=0.8)
        axes.set_yticks(heights, [name.replace("_", " ") for name in names])
        axes.set_ylim(heights[-1] - 0.6, 0.6)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("error (%)")
        figure.legend(loc="outside upper center", ncols=4)
    return figure
