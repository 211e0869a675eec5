"""Accuracy of the linear classifier as the Gaussians' shifts grow: one panel per shift."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from fenchel.paper.gaussian_experiment import Accuracies, GaussianOutcome
from fenchel.report.layout import Layout, TableEntry, to_csv
from fenchel.report.style import is_front, palette, styled
from fenchel.report.tables import Measurement

BAND = (0.1, 0.9)
NAMES = {"hard": "hard label", "entropy": "entropy of the sigmoid"}
DIFFICULTY = {0.6: "easy", 0.65: "moderate", 0.7: "hard"}

PAPER_ON_GAUSSIANS = (
    "paper: conjugate is the fastest at 0.6 and 0.65; at 0.7 it alone improves and entropy gets worse "
    "(curves without numbers)"
)


def gaussian_figure(outcome: GaussianOutcome) -> Figure:
    """Mean accuracy over draws, with a band from the 10th to the 90th percentile of the draws."""
    settings, colors = outcome.settings, palette(outcome.settings.methods)
    with styled():
        figure = Figure(figsize=(2.9 * len(settings.shifts), 2.9), layout="constrained")
        panels = figure.subplots(1, len(settings.shifts), sharex=True, sharey=True, squeeze=False)
        for panel, shift in zip(panels.ravel(), settings.shifts, strict=True):
            for method in settings.methods:
                runs = outcome.accuracies[shift, method]
                steps, color = np.arange(runs.shape[1]), colors[method]
                low, high = np.quantile(runs, BAND, axis=0)
                front = is_front(method)
                panel.fill_between(steps, low, high, color=color, alpha=0.1, linewidth=0)
                panel.plot(steps, low, steps, high, color=color, alpha=0.5, linewidth=0.6)
                panel.plot(
                    steps,
                    runs.mean(0),
                    color=color,
                    linewidth=2.2 if front else 1.4,
                    linestyle="-" if front else "--" if method == "hard" else "-.",
                    zorder=4 if front else 3,
                    label=NAMES.get(method, method),
                )
            note = f" ({DIFFICULTY[shift]})" if shift in DIFFICULTY else ""
            panel.set_title(f"λ = {shift:g}{note}")
        figure.supxlabel("iterations", fontsize=9)
        figure.supylabel("accuracy (%)", fontsize=9)
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    return figure


def gaussian_table(outcome: GaussianOutcome) -> Layout:
    """Accuracy before, half-way and after, with its spread over draws; best of a shift bold."""
    settings = outcome.settings
    steps = (0, settings.iterations // 2, settings.iterations)
    rows = []
    for shift in settings.shifts:
        cells = {
            (method, step): Measurement(tuple(outcome.accuracies[shift, method][:, step]))
            for method in settings.methods
            for step in steps
        }
        for method in settings.methods:
            name = f"λ = {shift:g}, {NAMES.get(method, method)}"
            row = [TableEntry(name, "row" if is_front(method) else "")]
            for step in steps:
                cell = cells[method, step]
                highest = max(cells[other, step].mean for other in settings.methods)
                best = step > 0 and cell.mean == highest
                row.append(TableEntry(cell.text(2), "best" if best else "", cell.mean))
            rows.append(tuple(row))
    headings = ("shift and method", *(f"step {step}" for step in steps))
    caption = (
        f"accuracy in %, mean ± standard deviation over {settings.draws} draws, highest in bold"
    )
    return Layout(caption, headings, tuple(rows))


def gaussian_csv(outcome: GaussianOutcome) -> str:
    """Every point of the figure: mean, band and spread over draws."""
    rows = []
    for (shift, method), runs in outcome.accuracies.items():
        low, high = np.quantile(runs, BAND, axis=0)
        spread = runs.std(0, ddof=1) if len(runs) > 1 else [None] * runs.shape[1]
        points = zip(runs.mean(0), low, high, spread, strict=True)
        rows += [(shift, method, step, *point) for step, point in enumerate(points)]
    return to_csv(("shift", "method", "iteration", "mean", "low", "high", "spread"), rows)


def gaussian_verdict(outcome: GaussianOutcome) -> list[str]:
    """The results in words, one sentence per shift, made from the numbers alone."""
    settings = outcome.settings
    sentences = []
    for shift in settings.shifts:
        over_steps = {m: outcome.accuracies[shift, m].mean(1) for m in settings.methods}
        fastest = max(over_steps, key=lambda method: float(over_steps[method].mean()))
        winners = [
            f"{NAMES.get(method, method)} in {count}"
            for method, count in _wins(list(over_steps.items())).items()
            if count
        ]
        falling = [
            f"{NAMES.get(method, method)} in {worse}"
            for method in settings.methods
            if (worse := _worse(outcome, shift, method))
        ]
        sentences.append(
            f"λ = {shift:g}: accuracy over the iterations is highest for {', '.join(winners)} of "
            f"{settings.draws} draws, and on average for {NAMES.get(fastest, fastest)}; "
            f"ends below the source: {', '.join(falling) or 'none, in any draw'}."
        )
    return sentences


def _wins(over_steps: list[tuple[str, Accuracies]]) -> dict[str, int]:
    """The number of draws in which each method is the best; ties go to the first."""
    best = np.stack([values for _, values in over_steps]).argmax(0)
    return {method: int((best == place).sum()) for place, (method, _) in enumerate(over_steps)}


def _worse(outcome: GaussianOutcome, shift: float, method: str) -> int:
    runs = outcome.accuracies[shift, method]
    return int((runs[:, -1] < runs[:, 0]).sum())
