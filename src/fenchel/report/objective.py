"""The picture of a loss's test-time objective, as one logit moves and the others stay."""

from __future__ import annotations

import torch
from matplotlib.figure import Figure

from fenchel.losses import CrossEntropy, Loss
from fenchel.report.style import METHOD_COLORS, styled


def objective_figure(loss: Loss, title: str, classes: int) -> Figure:
    """Objective and label against one moving logit, beside entropy and softmax where they apply."""
    moving = torch.linspace(-8, 8, 201, dtype=torch.float64)
    h = torch.zeros(len(moving), classes, dtype=torch.float64)
    h[:, 0] = moving
    with torch.no_grad():
        objective, label = loss.conjugate(h), loss.label(h)[:, 0]
        entropy, softmax = CrossEntropy().conjugate(h), h.softmax(-1)[:, 0]
    with styled():
        figure = Figure(figsize=(7.2, 2.9), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.plot(moving, objective, color=METHOD_COLORS["conjugate"], label="derived objective")
        right.plot(moving, label, color=METHOD_COLORS["conjugate"], label="conjugate label")
        if classes > 1:
            faint = {"color": METHOD_COLORS["entropy"], "linestyle": "--", "linewidth": 1.2}
            left.plot(moving, entropy, label="entropy", **faint)
            right.plot(moving, softmax, label="softmax", **faint)
        left.set(title=title, xlabel="logit of one class, the others at 0", ylabel="objective")
        right.set(title="label of that class", xlabel="logit of one class", ylabel="label")
        for axes in (left, right):
            axes.legend()
    return figure
