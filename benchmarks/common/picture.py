"""The figure of docs/performance.md: time and memory of a step, and how they grow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.steps import BEFORE, FULL, NAIVE
from fenchel.report.style import METHOD_COLORS, styled

WAYS = {
    FULL: "conjugate",
    BEFORE: "entropy",
    "last:1": "robust",
    "inference": "source",
}
"""The ways that are drawn, and the method whose colour each takes."""


def draw(results: Mapping[str, Any]) -> Figure:
    """Bars of time and of memory beside the naive step; with scaling measured, the stream as well."""
    with styled():
        panels = 3 if "scaling" in results else 2
        figure = Figure(figsize=(4.2 * panels, 2.9), layout="constrained")
        axes = figure.subplots(1, panels)
        _bars(axes[0], results["step"], "of_naive_step", "CPU time of a step")
        _bars(axes[1], results["memory"], "of_naive_step", "Peak memory of a step")
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(names))
        if panels == 3:
            _stream(axes[2], results["scaling"])
    return figure


def _bars(axes: Axes, content: Mapping[str, Any], column: str, title: str) -> None:
    rows = [row for row in content["results"] if row.get("freed_memory") == "returned"]
    networks = list(dict.fromkeys(row["network"] for row in rows))
    ways = [way for way in WAYS if any(row["way"] == way for row in rows)]
    width = 0.8 / max(len(ways), 1)
    for place, way in enumerate(ways):
        found = {row["network"]: row[column] for row in rows if row["way"] == way}
        shares = [value[0] if isinstance(value, list) else value for value in found.values()]
        at = [networks.index(name) + (place - (len(ways) - 1) / 2) * width for name in found]
        bars = axes.bar(at, shares, width=0.92 * width, color=METHOD_COLORS[WAYS[way]], label=way)
        axes.bar_label(bars, fmt="%.2f", fontsize=6.5, padding=1)
    axes.axhline(1.0, color="#33363b", linewidth=0.9, linestyle="--")
    axes.set_xticks(range(len(networks)), networks)
    axes.set_ylabel(f"share of the {NAIVE}")
    axes.set_ylim(0, max(1.15, axes.get_ylim()[1]))
    axes.grid(visible=False, axis="x")
    axes.set_title(title)


def _stream(axes: Axes, content: Mapping[str, Any]) -> None:
    rows = [row for row in content["results"] if row["vary"] == "stream"]
    lengths = [row["batches"] for row in rows]
    growth = [row["growth_bytes"] / 2**20 for row in rows]
    axes.plot(lengths, growth, marker="o", color=METHOD_COLORS["conjugate"])
    axes.set_xscale("log")
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.minorticks_off()
    axes.set_ylim(min(0.0, *growth) - 1, max(10.0, 1.2 * max(growth)))
    axes.set_xlabel("batches of one stream")
    axes.set_ylabel("MiB since the first sample")
    axes.set_title("Memory along a stream")
