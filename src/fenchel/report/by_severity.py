"""Error against severity, one line a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fenchel.report.distances import Rows, panels_of
from fenchel.report.style import color_of, is_front, marker_of, styled
from fenchel.report.tables import NOTHING, Measurement


def error_by_severity_figure(
    errors: Mapping[tuple[str, int], Measurement], methods: Sequence[str]
) -> Figure:
    """`errors` by (method, severity), averaged over corruptions; bars are standard deviations.

    Where the conjugate is among the methods, a second panel shows how far the others are from it.
    """
    severities = sorted({severity for _, severity in errors})
    panels = panels_of({m: [errors.get((m, at), NOTHING) for at in severities] for m in methods})
    with styled():
        figure = Figure(figsize=(3.8 * len(panels) + 1.4, 3.5), layout="constrained")
        for axes, (label, rows) in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
        ):
            _draw(axes, rows, methods, severities)
            axes.set_xticks(severities)
            axes.set(xlabel="severity", ylabel=label)
        for axes in figure.axes[1:]:
            axes.axhline(0, color=color_of("conjugate"), linewidth=1.4, zorder=2)
        handles = figure.axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside right upper")
    return figure


def _draw(axes: Axes, rows: Rows, methods: Sequence[str], severities: Sequence[int]) -> None:
    for position, method in enumerate(methods):
        measured = [
            (at, cell.mean, cell.spread or 0.0)
            for at, cell in zip(severities, rows.get(method, ()), strict=False)
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
            color=color_of(method, position),
            zorder=4 if front else 3,
            label=method,
        )
