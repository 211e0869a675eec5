"""Error against severity, one line a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from fenchel.report.style import color_of, is_front, marker_of, styled
from fenchel.report.tables import Measurement


def error_by_severity_figure(
    errors: Mapping[tuple[str, int], Measurement], methods: Sequence[str]
) -> Figure:
    """`errors` by (method, severity), averaged over corruptions; bars are standard deviations."""
    severities = sorted({severity for _, severity in errors})
    with styled():
        figure = Figure(figsize=(5.2, 3.1), layout="constrained")
        axes = figure.subplots()
        for position, method in enumerate(methods):
            at = [severity for severity in severities if (method, severity) in errors]
            cells = [errors[method, severity] for severity in at]
            if not cells:
                continue
            front = is_front(method)
            axes.errorbar(
                at,
                [cell.mean for cell in cells],
                yerr=[cell.spread or 0.0 for cell in cells],
                marker=marker_of(method),
                markersize=5,
                elinewidth=1,
                linewidth=2.2 if front else 1.2,
                color=color_of(method, position),
                zorder=4 if front else 3,
                label=method,
            )
        axes.set_xticks(severities)
        axes.set(xlabel="severity", ylabel="error (%)")
        figure.legend(loc="outside right upper")
    return figure
