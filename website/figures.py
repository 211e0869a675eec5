"""The figures of the guides, drawn from published results: `python website/figures.py` writes them."""

from __future__ import annotations

import csv
from pathlib import Path

from matplotlib.figure import Figure

from fenchel.report.style import PAGE_WIDTH, legend_above, marker_of, palette, save, styled

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "figures"

SOUGHT = {
    "source": "poly",
    "corruptions": "validation",
    "optimizer": "sgd",
    "temperature": "1.0",
    "batch_size": "100",
    "images": "5000",
}
TICKS = (0.001, 0.003, 0.01, 0.03, 0.1)
SHOWN_METHODS = ("source", "bn", "bn-alpha", "conjugate", "eta", "roid", "rotta")
SHOWN_STREAMS = {
    "reset": "shuffled",
    "correlated": "correlated labels",
    "batch size 1": "single images",
}


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a file of results."""
    with (ROOT / "results" / name).open(newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


def error_by_rate() -> Figure:
    """Every method over its learning rates: all of them break down somewhere."""
    found: dict[str, dict[float, float]] = {}
    for row in rows("tuning.csv"):
        if all(row[key] == value for key, value in SOUGHT.items()):
            found.setdefault(row["method"], {})[float(row["learning_rate"])] = float(row["error"])
    colors = palette(found)
    with styled():
        figure = Figure(figsize=(PAGE_WIDTH, 3.4), layout="constrained")
        panel = figure.subplots()
        lines = {}
        for method, errors in found.items():
            rates = sorted(errors)
            (lines[method],) = panel.plot(
                rates,
                [errors[rate] for rate in rates],
                color=colors[method],
                marker=marker_of(method),
            )
        panel.set(xscale="log", xlabel="learning rate", ylabel="error (%)", ylim=(0, None))
        panel.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
        panel.minorticks_off()
        panel.set_title("PolyLoss source, four corruptions of CIFAR-10-C, 50 updates each")
        legend_above(figure, lines, most=6)
    return figure


def error_by_stream() -> Figure:
    """Methods on three kinds of streams: what suits shuffled images fails elsewhere."""
    errors = {(row["line"], row["method"]): float(row["ours"]) for row in rows("streams.csv")}
    colors = palette(SHOWN_METHODS)
    with styled():
        figure = Figure(figsize=(PAGE_WIDTH, 3.4), layout="constrained")
        panel = figure.subplots()
        width = 0.8 / len(SHOWN_METHODS)
        bars = {}
        for number, method in enumerate(SHOWN_METHODS):
            heights = [errors[f"cross-entropy, {stream}", method] for stream in SHOWN_STREAMS]
            places = [place + (number - 3) * width for place in range(len(SHOWN_STREAMS))]
            bars[method] = panel.bar(places, heights, width * 0.92, color=colors[method])[0]
        panel.set_xticks(range(len(SHOWN_STREAMS)), list(SHOWN_STREAMS.values()))
        panel.axhline(90, color="#6b7079", linestyle=":", linewidth=1)
        panel.annotate("guessing", (-0.45, 91), fontsize=8, color="#4a4e55")
        panel.grid(axis="x", visible=False)
        panel.set(ylabel="error (%)", ylim=(0, 100))
        panel.set_title("Cross-entropy source, CIFAR-10-C, nothing protected")
        legend_above(figure, bars, most=7)
    return figure


DRAWN = {"collapse-by-rate.svg": error_by_rate, "collapse-by-stream.svg": error_by_stream}


def main() -> None:
    """Write all of them."""
    for name, draw in DRAWN.items():
        save(draw(), FIGURES / name)


if __name__ == "__main__":
    main()
