"""The experiment on learned objectives as a figure, and as one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fenchel.files import write_atomically
from fenchel.paper.learned import LENGTHS, Learned, MetaOutcome
from fenchel.paper.planning import PresetPlan
from fenchel.report.html import drawn, render
from fenchel.report.layout import Layout
from fenchel.report.learned import FIT_COLORS, LEARNED_COLOR, POINTS
from fenchel.report.style import PHONE_WIDTH, styled
from fenchel.report.tables import Measurement


def learned_grid_figure(
    learned: Sequence[Learned], *, moving: int = 0, narrow: bool = False
) -> Figure:
    """Sources down, task losses across: objectives as the logit of class `moving` moves.

    One panel below the other where the page is narrow.
    Thin lines are the learned objectives, dashed ones their fits, each over the range of logits that
    the fits were made on, the other logits at their mean. An objective has no origin: every one, with
    its fits, is shifted so that the mean of its curve is zero. R² is that of the fit over all logits.
    """
    if not learned:
        raise ValueError("a figure needs at least one learned objective; got none. Learn some.")
    found: dict[tuple[str, str], list[Learned]] = {}
    for entry in learned:
        found.setdefault((entry.source, entry.task_loss), []).append(entry)
    sources, tasks = (list(dict.fromkeys(place[axis] for place in found)) for axis in (0, 1))
    places = list(found) if narrow else list(product(sources, tasks))
    across = 1 if narrow else len(tasks)
    with styled():
        width = PHONE_WIDTH if narrow else 3.7 * across + 0.4
        height = 3.1 * (len(places) // across) + 0.4
        figure = Figure(figsize=(width, height), layout="constrained")
        panels = figure.subplots(len(places) // across, across, squeeze=False).ravel()
        for panel, (source, task) in zip(panels, places, strict=True):
            panel.set_visible((source, task) in found)
            _draw(panel, found.get((source, task), ()), moving)
            panel.set_title(f"source {source}, task {task}")
        figure.supxlabel("logit of one class, the others at rest", fontsize=9)
        figure.supylabel("objective, shifted to mean zero", fontsize=9)
    return figure


def _draw(panel: Axes, found: Sequence[Learned], moving: int) -> None:
    for entry in found:
        h = _moved(entry, moving)
        across = h[:, moving]
        with torch.no_grad():
            curve = entry.objective(h)
            middle = curve.mean()
            panel.plot(across, curve - middle, color=LEARNED_COLOR, linewidth=0.9)
            for name, fit in entry.fits.by_name().items():
                values = fit.objective(h) - middle
                panel.plot(across, values, color=FIT_COLORS[name], linestyle="--", linewidth=1.0)
    seeds = "1 seed" if len(found) == 1 else f"{len(found)} seeds"
    panel.plot([], color=LEARNED_COLOR, linewidth=0.9, label=f"learned, {seeds}")
    for name, color in FIT_COLORS.items():
        quality = Measurement(tuple(entry.fits.by_name()[name].r_squared for entry in found))
        label = f"{name} fit, R² {quality.text(2)}"
        panel.plot([], color=color, linestyle="--", linewidth=1.0, label=label)
    panel.legend(fontsize=7)


def _moved(entry: Learned, moving: int) -> Tensor:
    """Logits (POINTS, classes): one moves over the range of the fits, the others rest."""
    h = torch.tensor(entry.fits.resting, dtype=torch.float64).repeat(POINTS, 1)
    h[:, moving] = torch.linspace(entry.fits.low, entry.fits.high, POINTS, dtype=torch.float64)
    return h


def write_learned_page(
    out: Path,
    *,
    tables: Sequence[Layout],
    learned: Sequence[Learned],
    verdict: Sequence[str],
    protocol: Mapping[str, str],
    notes: Sequence[str] = (),
) -> None:
    """Write the page to `out`, whole or not at all; equal results give equal bytes."""
    text = render(
        "learned.html",
        script="sort.js",
        tables=tables,
        figure=drawn(
            lambda narrow: learned_grid_figure(learned, narrow=narrow),
            "Learned objectives and their fits",
            "learned-",
        ),
        verdict=verdict,
        protocol=protocol,
        notes=notes,
    )
    write_atomically(out, text.encode())


def learned_protocol(planned: PresetPlan, outcome: MetaOutcome) -> dict[str, str]:
    """How the numbers came about, in words."""
    scale = planned.lines[0].scale
    first = outcome.learned[0]
    learned = first.objective.protocol
    split = learned["target"]["split"]
    return {
        "scale": f"{planned.scale}: {scale}",
        "learning": f"{LENGTHS[planned.scale]}, on {split['learn']['images']} images under "
        f"{', '.join(learned['target']['corruptions'])}",
        "scoring": f"online on {split['score']['images']} other images per corruption, reset for each, "
        "prediction after the update",
        "fits": f"to {first.fits.samples} logits of the source on the images learned on",
        "sources": "; ".join(
            dict.fromkeys(
                f"{entry.source}: {entry.objective.protocol['source']['architecture']} "
                f"{entry.objective.protocol['source']['digest'][:12]}"
                for entry in outcome.learned
            )
        ),
    }
