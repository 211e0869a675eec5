"""Pictures of a stream: what is predicted over time, how sure, how far from the source, and what happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fenchel.report.stream_windows import Floats, Windows
from fenchel.report.style import finish_grid, legend_above, page_width, styled, wrapped

MOST_AREAS = 12
"""More classes than this are a heat map, of those that occur most."""
MOST_ROWS = 20

_CLASS_COLORS = (
    "#4878a8", "#e49444", "#6a9f58", "#d1615d", "#85b6b2", "#a87c9f",
    "#e7ca60", "#967662", "#f1a2a9", "#5f6a7a", "#b8c27a", "#2e5a6b",
)  # fmt: skip
_FEW_TO_MANY = LinearSegmentedColormap.from_list(
    "shares", ["#ffffff", "#cfe0ef", "#7fb0d8", "#3f7fbf", "#1f3a5f"]
)
_EVENTS = {"reset": "|", "skipped": "x", "left out": "v"}
"""What happens at a batch, and its mark."""
_INK = "#33363b"
_SHADES: dict[str, dict[str, Any]] = {
    "suspect": {"facecolor": "#fbe9c8"},
    "collapsed": {"facecolor": "#f6d6d2", "hatch": "///", "edgecolor": "#e2a49d"},
}


class Signal(NamedTuple):
    """A quantity over the stream: its title, its name in the log, that of the source, and 100 for shares."""

    title: str
    name: str
    of_source: str = ""
    factor: float = 1.0


ERROR = Signal("Error (%)", "error", "source_error")
SIGNALS = (
    Signal("Agreement with the source (%)", "agreement", factor=100.0),
    Signal("Confidence (%)", "confidence", "source_confidence", 100.0),
    Signal("Entropy of a prediction (nats)", "entropy", "source_entropy"),
    Signal("Classes in use", "effective_classes", "source_effective_classes"),
)


def signal_names() -> list[str]:
    """The quantities that the figures of signals need."""
    return [name for signal in (ERROR, *SIGNALS) for name in signal[1:3] if name]


def known_signals(windows: Windows, signals: Sequence[Signal]) -> list[Signal]:
    """The signals that some batch has."""
    return [signal for signal in signals if windows.mean(signal.name) is not None]


def signals_figure(
    windows: Windows, signals: Sequence[Signal], colors: Mapping[str, str], *, narrow: bool = False
) -> Figure:
    """One panel per signal, with what happened; `colors` of `adapted` and `source`."""
    shown = known_signals(windows, signals)
    across = 1 if narrow else min(2, len(shown))
    down = -(-len(shown) // across)
    with styled():
        size = (page_width(narrow=narrow), 2.0 * down + (0.9 if narrow else 0.6))
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(down, across, sharex=True, squeeze=False).ravel()
        entries: dict[str, Artist] = {}
        for panel, signal in zip(panels, shown, strict=False):
            entries |= _draw_signal(panel, windows, signal, colors)
            entries |= _draw_verdicts(panel, windows)
            entries |= _draw_events(panel, windows)
            panel.set_title(signal.title)
            panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        finish_grid(list(panels), len(shown), across)
        figure.supxlabel("batches", fontsize=9)
        order = ("adapted", "source", *_EVENTS, *_SHADES)
        legend_above(figure, {name: entries[name] for name in order if name in entries}, most=8)
    return figure


def _draw_signal(
    panel: Axes, windows: Windows, signal: Signal, colors: Mapping[str, str]
) -> dict[str, Artist]:
    entries: dict[str, Artist] = {}
    for label, name in (("source", signal.of_source), ("adapted", signal.name)):
        if (values := windows.mean(name)) is None:
            continue
        # The source may have been asked now and then: a line joins its points, which are marked.
        known = np.isfinite(values)
        (entries[label],) = panel.plot(
            windows.middle[known],
            signal.factor * values[known],
            color=colors[label],
            linestyle="-" if label == "adapted" else "--",
            linewidth=2.0 if label == "adapted" else 1.5,
            marker="o" if known.sum() == 1 or not known.all() else None,
            markersize=6 if known.sum() == 1 else 2.5,
        )
    low, high = windows.first[0] - 0.5, windows.last[-1] + 0.5
    panel.set_xlim(low, high)
    # Room for the marks of events below and above the curves.
    top = 100.0 if signal.factor == 100.0 else max(float(panel.dataLim.y1), 1e-9)
    panel.set_ylim(-0.09 * top, 1.12 * top)
    panel.yaxis.set_major_locator(MaxNLocator(5))
    panel.set_yticks([tick for tick in panel.get_yticks() if 0 <= tick <= 1.05 * top])
    return entries


def _draw_verdicts(panel: Axes, windows: Windows) -> dict[str, Artist]:
    """Shade the windows that are not healthy."""
    for verdict, group in groupby(range(len(windows.verdicts)), windows.verdicts.__getitem__):
        if verdict in _SHADES:
            run = list(group)
            first, last = windows.first[run[0]] - 0.5, windows.last[run[-1]] + 0.5
            panel.axvspan(first, last, linewidth=0, zorder=0, **_SHADES[verdict])
    return {
        verdict: Patch(label=verdict, linewidth=0, **_SHADES[verdict])
        for verdict in _SHADES
        if verdict in windows.verdicts
    }


def _draw_events(panel: Axes, windows: Windows) -> dict[str, Artist]:
    """Resets as lines, skipped updates as crosses below, images left out as arrows from above."""
    entries: dict[str, Artist] = {}
    for kind, marker in _EVENTS.items():
        where = windows.events[kind]
        if not where:
            continue
        entries[kind] = Line2D([], [], color=_INK, linestyle="none", marker=marker, markersize=6)
        if kind == "reset":
            for batch in where:
                panel.axvline(batch, color=_INK, linewidth=1.0, linestyle=(0, (4, 2)))
            continue
        height = 0.05 if kind == "skipped" else 0.95
        panel.plot(
            where,
            [height] * len(where),
            transform=panel.get_xaxis_transform(),
            color=_INK,
            linestyle="none",
            marker=marker,
            markersize=4.5,
        )
    return entries


def classes_figure(windows: Windows, names: Mapping[int, str], *, narrow: bool = False) -> Figure:
    """Which classes are predicted over time, by the adapted model and, where known, by the source.

    Few classes are a stacked area, many a heat map of those that occur most. The windows must have counts.
    """
    panels = {
        title: _shares(counts)
        for title, counts in (
            ("The adapted model predicts", windows.counts),
            ("The source predicts", windows.source_counts),
        )
        if counts is not None
    }
    draw = _areas if windows.classes <= MOST_AREAS else _heat_maps
    with styled():
        return draw(windows, panels, names, narrow)


def _shares(counts: Floats) -> Floats:
    """The share of every class in percent, by window; a window without any has those of its neighbour."""
    totals = counts.sum(1)
    (known,) = np.nonzero(totals)
    if not len(known):
        return np.zeros_like(counts)
    nearest = known[np.abs(np.arange(len(counts))[:, None] - known).argmin(1)]
    shares: Floats = 100 * counts[nearest] / totals[nearest, None]
    return shares


def _areas(
    windows: Windows, panels: Mapping[str, Floats], names: Mapping[int, str], narrow: bool
) -> Figure:
    size = (page_width(narrow=narrow), 2.0 * len(panels) + (1.1 if narrow else 0.4))
    figure = Figure(figsize=size, layout="constrained")
    places = figure.subplots(len(panels), 1, sharex=True, squeeze=False).ravel()
    # Half a batch beyond the middle of the first and the last window, so that one window is an area too.
    at = np.array([windows.first[0] - 0.5, *windows.middle, windows.last[-1] + 0.5])
    handles: Sequence[Artist] = []
    for panel, (title, shares) in zip(places, panels.items(), strict=True):
        filled = np.vstack([shares[:1], shares, shares[-1:]]).T
        handles = panel.stackplot(
            at, filled, colors=_CLASS_COLORS, edgecolor="white", linewidth=0.4
        )
        panel.set(xlim=(at[0], at[-1]), ylim=(0, 100), title=title)
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        panel.grid(visible=False)
    figure.supxlabel("batches", fontsize=9)
    figure.supylabel("share of the predictions (%)", fontsize=9)
    classes = [class_name(k, names) for k in range(len(handles))]
    if narrow:
        legend_above(figure, dict(zip(classes, handles, strict=True)), most=4)
    else:  # from above, as the areas lie
        labels = [wrapped(name, 1.8, lines=1) for name in classes]
        figure.legend(handles[::-1], labels[::-1], loc="outside right center")
    return figure


def _heat_maps(
    windows: Windows, panels: Mapping[str, Floats], names: Mapping[int, str], narrow: bool
) -> Figure:
    shown = most_predicted(windows)
    highest = max(float(shares.max(initial=0.0)) for shares in panels.values())
    down, across = (len(panels), 1) if narrow else (1, len(panels))
    size = (page_width(narrow=narrow), (0.17 * len(shown) + 0.6) * down + 0.5)
    figure = Figure(figsize=size, layout="constrained")
    places = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    # By the square root, so that rare classes are seen beside frequent ones.
    norm = PowerNorm(0.5, 0, max(highest, 1e-9))
    labels = [wrapped(class_name(k, names), 1.8, lines=1) for k in shown]
    for panel, (title, shares) in zip(places, panels.items(), strict=True):
        image = panel.imshow(
            shares[:, shown].T,
            aspect="auto",
            interpolation="none",
            cmap=_FEW_TO_MANY,
            norm=norm,
            extent=(windows.first[0] - 0.5, windows.last[-1] + 0.5, len(shown) - 0.5, -0.5),
        )
        panel.set_yticks(range(len(shown)), labels)
        panel.tick_params(axis="y", length=0, labelsize=8)
        panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        panel.grid(visible=False)
        panel.set_title(title)
    bar = figure.colorbar(
        image,
        ax=list(places),
        shrink=0.9,
        aspect=40,
        location="bottom" if narrow else "right",
        label="share of the predictions (%)",
    )
    bar.outline.set_visible(False)
    figure.supxlabel("batches", fontsize=9)
    return figure


def most_predicted(windows: Windows) -> list[int]:
    """The classes that the adapted model or the source predicts most, the most frequent first."""
    if windows.counts is None:
        return []
    total = windows.counts.sum(0)
    if windows.source_counts is not None:
        total = np.maximum(total, windows.source_counts.sum(0))
    order = np.argsort(-total, kind="stable")[:MOST_ROWS]
    return [int(k) for k in order if total[k] > 0]


def class_name(index: int, names: Mapping[int, str]) -> str:
    """The name of a class, or its number."""
    return names.get(index) or f"class {index}"
