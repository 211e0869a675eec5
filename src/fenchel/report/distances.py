"""How far methods are from the conjugate pseudo-label: methods that adapt lie close together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fenchel.report.tables import NOTHING, Measurement

UNADAPTED = ("source", "bn")
"""Too far from the others to be drawn beside them."""

Rows = Mapping[str, Sequence[Measurement]]
"""By method: what was measured in the same places for each."""


def panels_of(rows: Rows) -> dict[str, Rows]:
    """The panels of a figure by the labels of their axes: errors, and distances where there are any."""
    panels = {"error (%)": rows}
    if distances := _minus_conjugate(rows):
        panels["error minus that of the conjugate (points)"] = distances
    return panels


def _minus_conjugate(rows: Rows) -> dict[str, Sequence[Measurement]]:
    """What adapts minus the conjugate, seed by seed; nothing if there is nothing to compare."""
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
