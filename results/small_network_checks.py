"""Networks of a few layers on scikit-learn's digits, in any order and batch size: default and source.

    python results/small_network_checks.py        # results/small-network-checks.csv, a minute

A multilayer perceptron whose batch normalisation is over vectors, and a small network of convolutions. Both
are trained here on the first thousand digits and adapt to the others, shifted in ways of this file alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from reading import rows_of
from sklearn.datasets import load_digits
from tables import markdown
from torch import Tensor, nn

import fenchel
from fenchel.files import write_atomically
from fenchel.report.layout import TableEntry, to_csv

NAME = "small-network-checks"
FILE = Path(__file__).parent / f"{NAME}.csv"
TRAINED_ON, EPOCHS, BATCH = 1000, 40, 50
HEADINGS = ("network", "shift", "stream", "images", "error", "verdict")
SOURCE = "source"
STREAMS = {"shuffled": 50, "sorted": 50, "batches of 4": 4, "single images": 1}
"""The batch size of every stream."""


def noisy(x: Tensor) -> Tensor:
    """Pixels with noise."""
    return x + 0.35 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))


SHIFTS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "noise": noisy,
    "dark": lambda x: 0.4 * x,
    "bright": lambda x: 0.5 * x + 0.5,
}


def perceptron() -> nn.Sequential:
    """Batch normalisation over vectors."""
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()),
        *(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10)),
    )


def convolutions() -> nn.Sequential:
    """Batch normalisation over maps."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10)),
    )


NETWORKS = {"vectors": perceptron, "convolutions": convolutions}


def trained(network: nn.Module, x: Tensor, y: Tensor) -> nn.Module:
    """The network after a few epochs of Adam."""
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(EPOCHS):
        for start in range(0, len(x), BATCH):
            batch = slice(start, start + BATCH)
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(network(x[batch]), y[batch]))
            optimizer.step()
    return network.eval()


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", fenchel.AdaptationWarning)
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    x = torch.from_numpy(digits.images).float()[order, None] / 16
    y = torch.from_numpy(digits.target)[order]
    rows: list[tuple[object, ...]] = []
    for name, made in NETWORKS.items():
        torch.manual_seed(0)
        network = trained(made(), x[:TRAINED_ON], y[:TRAINED_ON])
        for shift, shifted in SHIFTS.items():
            images, labels = shifted(x[TRAINED_ON:]), y[TRAINED_ON:]
            count = len(labels)
            wrong = int((network(images).argmax(-1) != labels).sum())
            rows.append((name, shift, SOURCE, count, 100 * wrong / count, ""))
            for stream, size in STREAMS.items():
                adapted, wrong = fenchel.adapt(network, trained_with="cross-entropy"), 0
                met = (
                    torch.argsort(labels, stable=True)
                    if stream == "sorted"
                    else torch.arange(count)
                )
                for start in range(0, count, size):
                    batch = met[start : start + size]
                    wrong += int((adapted(images[batch]).argmax(-1) != labels[batch]).sum())
                verdict = adapted.health().verdict
                rows.append((name, shift, stream, count, 100 * wrong / count, verdict))
    write_atomically(FILE, to_csv(HEADINGS, rows).encode())


def table() -> str:
    """The errors, a shift of a network per line."""
    found = {(r["network"], r["shift"], r["stream"]): float(r["error"]) for r in rows_of(NAME)}
    ways = (SOURCE, *STREAMS)
    lines = []
    for network, shift in dict.fromkeys((network, shift) for network, shift, _ in found):
        errors = [found[network, shift, way] for way in ways]
        shown = [TableEntry(f"{error:.1f}", value=error) for error in errors]
        lines.append((TableEntry(network), TableEntry(shift), *shown))
    return markdown(["batch norm over", "shift", *ways], lines)


if __name__ == "__main__":
    main()
