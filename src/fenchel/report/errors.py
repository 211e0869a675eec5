"""Errors by corruption and by severity, as figures, with a panel of distances from the conjugate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fenchel.report.style import (
    METHOD_COLORS,
    PHONE_WIDTH,
    is_front,
    legend_above,
    marker_of,
    palette,
    styled,
    wrapped,
)
from fenchel.report.tables import NOTHING, ErrorTable, Measurement

UNADAPTED = ("source", "bn")
"""Methods whose errors are too far from the others to be drawn beside them."""

Rows = Mapping[str, Sequence[Measurement]]
"""Measurements by method, under the same conditions for each."""

CORRUPTIONS_WIDTH, SEVERITIES_WIDTH = 2 * 4.1 + 1.2, 2 * 3.8 + 1.4
LONGEST_NAME_BESIDE = 14
"""Longer names than this many letters stand above a figure, where they take no width from it."""


def panels_of(rows: Rows) -> dict[str, Rows]:
    """The panels of a figure by the labels of their axes: errors, and distances where there are any."""
    panels = {"error (%)": rows}
    if distances := _minus_conjugate(rows):
        panels["error minus that of the conjugate (points)"] = distances
    return panels


def _minus_conjugate(rows: Rows) -> dict[str, Sequence[Measurement]]:
    """The errors of methods that adapt minus the conjugate's, seed by seed; empty without a conjugate."""
    if "conjugate" not in rows:
        return {}
    return {
        method: [_minus(*cells) for cells in zip(row, rows["conjugate"], strict=True)]
        for method, row in rows.items()
        if method not in ("conjugate", *UNADAPTED)
    }


def _minus(cell: Measurement, other: Measurement) -> Measurement:
    if len(cell.values) != len(other.values):
        return NOTHING
    return Measurement(tuple(a - b for a, b in zip(cell.values, other.values, strict=True)))


def error_by_corruption_figure(
    table: ErrorTable, *, colors: Mapping[str, str] | None = None, narrow: bool = False
) -> Figure:
    """Means with one standard deviation over seeds; the mean over the corruptions at the bottom.

    Methods that adapt lie close together: where the conjugate is among them, a second panel shows how far
    the others are from it, seed by seed; below the first where the page is narrow.
    """
    names = table.headings if len(table.columns) > 1 else table.columns
    heights = [-float(k) - (0.4 if name == "mean" else 0.0) for k, name in enumerate(names)]
    rows = {method: table.row(method)[: len(names)] for method in table.rows}
    panels, colors = panels_of(rows), colors or palette(rows)
    down = len(panels) if narrow else 1
    width = PHONE_WIDTH if narrow else CORRUPTIONS_WIDTH
    with styled():
        size = (width, 0.32 * len(names) * down + 1.3 + 0.6 * (down - 1))
        figure = Figure(figsize=size, layout="constrained")
        places = figure.subplots(down, len(panels) // down, sharey=True, squeeze=False).ravel()
        for axes, (label, shown) in zip(places, panels.items(), strict=True):
            _draw_corruptions(axes, shown, colors, list(rows), heights)
            axes.set_xlabel(label)
            if names[-1] == "mean":
                axes.axhline((heights[-1] + heights[-2]) / 2, color="#6b7079", linewidth=0.8)
        for axes in figure.axes[1:]:
            axes.axvline(0, color=METHOD_COLORS["conjugate"], linewidth=1.4, zorder=2)
        first = figure.axes[0]
        room = width / (2 if narrow else 4)
        shifts = [wrapped(name.replace("_", " "), room, lines=2) for name in names]
        first.set_yticks(heights, shifts)
        first.set_ylim(heights[-1] - 0.6, 0.6)
        legend_above(figure, _entries(first), most=4)
    return figure


def _draw_corruptions(
    axes: Axes,
    rows: Rows,
    colors: Mapping[str, str],
    methods: Sequence[str],
    heights: Sequence[float],
) -> None:
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
            color=colors[method],
            elinewidth=1,
            alpha=1.0 if is_front(method) else 0.85,
            zorder=4 if is_front(method) else 3,
            label=method,
        )
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)


def _entries(axes: Axes) -> dict[str, Artist]:
    """What the legend shows, by name."""
    handles, names = axes.get_legend_handles_labels()
    return dict(zip(names, handles, strict=True))


def error_by_severity_figure(
    errors: Mapping[tuple[str, int], Measurement],
    methods: Sequence[str],
    *,
    colors: Mapping[str, str] | None = None,
    narrow: bool = False,
) -> Figure:
    """`errors` by (method, severity), averaged over corruptions; bars are standard deviations.

    Where the conjugate is among the methods, a second panel shows how far the others are from it;
    below the first where the page is narrow.
    """
    colors = colors or palette(methods)
    severities = sorted({severity for _, severity in errors})
    panels = panels_of({m: [errors.get((m, at), NOTHING) for at in severities] for m in methods})
    down = len(panels) if narrow else 1
    width = PHONE_WIDTH if narrow else SEVERITIES_WIDTH
    with styled():
        figure = Figure(figsize=(width, 2.6 * down + 0.9), layout="constrained")
        places = figure.subplots(down, len(panels) // down, squeeze=False).ravel()
        for axes, (label, rows) in zip(places, panels.items(), strict=True):
            _draw_severities(axes, rows, colors, severities)
            axes.set_xticks(severities)
            axes.set(xlabel="severity", ylabel=label)
        for axes in figure.axes[1:]:
            axes.axhline(0, color=METHOD_COLORS["conjugate"], linewidth=1.4, zorder=2)
        entries = _entries(figure.axes[0])
        if narrow or max(map(len, methods)) > LONGEST_NAME_BESIDE:
            legend_above(figure, entries, most=4)
        else:
            figure.legend(list(entries.values()), list(entries), loc="outside right upper")
    return figure


def _draw_severities(
    axes: Axes, rows: Rows, colors: Mapping[str, str], severities: Sequence[int]
) -> None:
    for method, row in rows.items():
        measured = [
            (at, cell.mean, cell.spread or 0.0)
            for at, cell in zip(severities, row, strict=True)
            if cell.values
        ]
        if not measured:
            continue
        where, means, spreads = zip(*measured, strict=True)
        front = is_front(method)
        axes.errorbar(
            where,
            means,
            yerr=spreads,
            marker=marker_of(method),
            markersize=5,
            elinewidth=1,
            linewidth=2.2 if front else 1.2,
            color=colors[method],
            zorder=4 if front else 3,
            label=method,
        )
