"""The map of the Gaussians: gains by range of variances and rate, and the region of the paper's panels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from fenchel.paper.gaussian_figure import NAMES
from fenchel.paper.gaussian_map import (
    ALONE_AT,
    FASTEST_AT,
    Point,
    Range,
    as_map,
    draws_that_hold,
    improves_alone,
    rises_fastest,
)
from fenchel.report.layout import Layout, TableEntry, to_csv
from fenchel.report.style import styled

COLUMNS = (
    "low_variance", "high_variance", "learning_rate", "shift", "draw", "method", "source", "final", "mean",
)  # fmt: skip
MOST = 25.0
"""Points of gain or loss at which the colours end."""
SHOWN = 3
"""Choices that are named at most."""
_GAINS = LinearSegmentedColormap.from_list("gains", ["#b5533c", "#f4efe6", "#1f3a5f"])
_COUNTS = LinearSegmentedColormap.from_list("counts", ["#ffffff", "#4f9d8f"])
_FRAME = "#c0392b"

Place = tuple[Range, float]
"""A range of variances and a rate."""
Methods = Mapping[str, Point]


def map_csv(points: Sequence[Point]) -> str:
    """Every adaptation: accuracies of the source, at the end, and on average over the iterations."""
    rows = [
        (*p.variances, p.rate, p.shift, p.draw, p.method, p.source, p.final, p.mean) for p in points
    ]
    return to_csv(COLUMNS, rows)


def read_map(rows: Sequence[Mapping[str, str]]) -> tuple[Point, ...]:
    """The points that rows of `map_csv` hold."""
    return tuple(
        Point(
            variances=(float(row["low_variance"]), float(row["high_variance"])),
            rate=float(row["learning_rate"]),
            shift=float(row["shift"]),
            draw=int(row["draw"]),
            method=row["method"],
            source=float(row["source"]),
            final=float(row["final"]),
            mean=float(row["mean"]),
        )
        for row in rows
    )


def draws_where(
    points: Sequence[Point], shift: float, what: Callable[[Methods], bool]
) -> dict[Place, int]:
    """In how many draws something holds at a shift, by range and rate."""
    counts: dict[Place, int] = {}
    for (variances, rate, at, _), methods in as_map(points).items():
        if at == shift:
            counts[variances, rate] = counts.get((variances, rate), 0) + what(methods)
    return counts


def map_table(points: Sequence[Point]) -> Layout:
    """In how many draws each of the paper's panels holds, and all of them together."""
    fastest = {shift: draws_where(points, shift, rises_fastest) for shift in FASTEST_AT}
    alone = draws_where(points, ALONE_AT, improves_alone)
    together = draws_that_hold(points)
    rows = []
    for place, count in together.items():
        counts = (*(fastest[shift][place] for shift in FASTEST_AT), alone[place], count)
        (low, high), rate = place
        name = TableEntry(f"variances {low:g} to {high:g}, rate {rate:g}")
        rows.append((name, *(TableEntry(str(each), value=each) for each in counts)))
    headings = (
        "variances and rate",
        *(f"fastest at {shift:g}" for shift in FASTEST_AT),
        f"alone at {ALONE_AT:g}",
        "together",
    )
    return Layout(
        f"draws, of {_draws(points)}, that show the paper's panels", headings, tuple(rows)
    )


def map_verdict(points: Sequence[Point]) -> list[str]:
    """What the map says, made from the numbers; a run is one draw at one choice of variances and rate."""
    together, draws = draws_that_hold(points), _draws(points)
    held = sorted((place for place in together if together[place]), key=lambda p: -together[p])
    often = sum(2 * count > draws for count in together.values())
    sentences = [
        f"The paper's three panels hold together in {sum(together.values())} of {len(together) * draws} "
        f"runs, and in more than half of the draws at {often or 'none'} of the {len(together)} choices of "
        "variances and rate."
    ]
    if held:
        named = [
            f"variances {low:g} to {high:g}, rate {rate:g} ({together[(low, high), rate]} of {draws})"
            for (low, high), rate in held[:SHOWN]
        ]
        sentences.append(f"Where they do: {'; '.join(named)}.")
    every = _runs(points, lambda methods: all(point.improves for point in methods.values()))
    falling = [
        f"the {NAMES.get(method, method)} in {_runs(points, _falls(method))}"
        for method in dict.fromkeys(point.method for point in points)
    ]
    sentences.append(
        f"At λ = {ALONE_AT:g} all objectives improve in {every} runs; "
        f"{', '.join(falling)} end a point or more below the source; the conjugate alone improves, and "
        f"the entropy falls, in {_runs(points, improves_alone)}."
    )
    return sentences


def _falls(method: str) -> Callable[[Methods], bool]:
    return lambda methods: methods[method].falls


def _runs(points: Sequence[Point], what: Callable[[Methods], bool]) -> int:
    """In how many runs something holds at the hard shift."""
    return sum(draws_where(points, ALONE_AT, what).values())


def _draws(points: Sequence[Point]) -> int:
    return len({point.draw for point in points})


def map_figure(points: Sequence[Point]) -> Figure:
    """Gains by method and shift, then the draws in which the conjugate alone improves.

    In the last row a frame marks where the paper's three panels hold together in one draw or more.
    """
    shifts = list(dict.fromkeys(point.shift for point in points))
    methods = list(dict.fromkeys(point.method for point in points))
    held = [place for place, count in draws_that_hold(points).items() if count]
    with styled():
        size = (1.75 * len(shifts) + 1.4, 1.75 * (len(methods) + 1))
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(
            len(methods) + 1, len(shifts), sharex=True, sharey=True, squeeze=False
        )
        for row, method in zip(panels, methods, strict=False):
            for panel, shift in zip(row, shifts, strict=True):
                chosen = [p for p in points if (p.method, p.shift) == (method, shift)]
                gains = _draw(panel, _mean_gains(chosen), _improved(chosen), (-MOST, MOST), _GAINS)
            row[0].set_ylabel(NAMES.get(method, method))
        for panel, shift in zip(panels[-1], shifts, strict=True):
            counts = draws_where(points, shift, improves_alone)
            _draw(panel, counts, counts, (0, _draws(points)), _COUNTS)
            if shift == ALONE_AT:
                _frame(panel, counts, held)
        panels[-1, 0].set_ylabel("conjugate alone\n(draws)")
        for panel, shift in zip(panels[0], shifts, strict=True):
            panel.set_title(f"λ = {shift:g}")
        bar = figure.colorbar(gains, ax=list(panels[:-1].ravel()), extend="both", shrink=0.6)
        bar.set_label("gain over the source (points)")
        bar.outline.set_visible(False)
        figure.supxlabel("learning rate", fontsize=9)
        figure.supylabel("range of the variances", fontsize=9)
    return figure


def _mean_gains(points: Sequence[Point]) -> dict[Place, float]:
    gains: dict[Place, list[float]] = {}
    for point in points:
        gains.setdefault((point.variances, point.rate), []).append(point.gain)
    return {place: float(np.mean(found)) for place, found in gains.items()}


def _improved(points: Sequence[Point]) -> dict[Place, int]:
    counts: dict[Place, int] = {}
    for point in points:
        place = (point.variances, point.rate)
        counts[place] = counts.get(place, 0) + point.improves
    return counts


def _draw(
    panel: Axes,
    values: Mapping[Place, float],
    texts: Mapping[Place, int],
    limits: tuple[float, float],
    colors: LinearSegmentedColormap,
) -> AxesImage:
    """A heat map of values with counts written into it."""
    ranges, rates = _axes(values)
    grid: npt.NDArray[np.float64] = np.array([[values[v, r] for r in rates] for v in ranges])
    image = panel.imshow(
        grid, origin="lower", aspect="auto", cmap=colors, vmin=limits[0], vmax=limits[1]
    )
    for (row, column), _ in np.ndenumerate(grid):
        dark = colors is _GAINS and abs(grid[row, column]) > MOST / 2
        text = str(texts[ranges[row], rates[column]])
        ink = "white" if dark else "#22252a"
        panel.text(column, row, text, ha="center", va="center", size=7, color=ink)
    panel.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates], size=7)
    panel.set_yticks(range(len(ranges)), [f"{low:g} to {high:g}" for low, high in ranges], size=7)
    panel.tick_params(length=0)
    panel.grid(visible=False)
    for spine in panel.spines.values():
        spine.set_visible(False)
    return image


def _frame(panel: Axes, values: Mapping[Place, float], places: Sequence[Place]) -> None:
    ranges, rates = _axes(values)
    for variances, rate in places:
        corner = (rates.index(rate) - 0.5, ranges.index(variances) - 0.5)
        panel.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=_FRAME, lw=2))


def _axes(values: Mapping[Place, float]) -> tuple[list[Range], list[float]]:
    return (
        list(dict.fromkeys(variances for variances, _ in values)),
        list(dict.fromkeys(rate for _, rate in values)),
    )
