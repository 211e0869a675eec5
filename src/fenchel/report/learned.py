"""The picture of a learned objective and its fits, as one logit moves and the others stay."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from matplotlib.figure import Figure

from fenchel.objectives import Objective
from fenchel.report.style import METHOD_COLORS, styled
from fenchel.train.meta import Fits

POINTS = 201
LEARNED_COLOR = "#1f2430"
FIT_COLORS = {"entropy": METHOD_COLORS["entropy"], "quadratic": "#a4883a"}


def learned_figure(
    objective: Objective,
    fits: Fits,
    *,
    moving: Sequence[int] = (0, 1, 2),
    names: Sequence[str] = (),
    title: str = "",
) -> Figure:
    """A panel for each class in `moving`; all other logits stay at their mean.

    The learned objective is drawn in full, the fits dashed, the better one broader; all over the
    range of logits that the fits were made on.
    """
    resting = torch.tensor(fits.resting, dtype=torch.float64)
    classes = len(resting)
    if not moving or not all(0 <= k < classes for k in moving):
        raise ValueError(
            f"classes that move are numbers from 0 to {classes - 1}; got {list(moving)}. "
            "Choose some of these."
        )
    across = torch.linspace(fits.low, fits.high, POINTS, dtype=torch.float64)
    with styled():
        figure = Figure(figsize=(2.9 * len(moving) + 0.3, 3.1), layout="constrained")
        panels = figure.subplots(1, len(moving), sharey=True, squeeze=False).ravel()
        for panel, k in zip(panels, moving, strict=True):
            h = resting.repeat(POINTS, 1)
            h[:, k] = across
            with torch.no_grad():
                panel.plot(
                    across, objective(h), color=LEARNED_COLOR, linewidth=2.2, label="learned"
                )
                for name, fit in fits.by_name().items():
                    panel.plot(
                        across,
                        fit.objective(h),
                        color=FIT_COLORS[name],
                        linestyle="--",
                        linewidth=1.8 if name == fits.better else 1.1,
                        label=f"{name} fit, R² = {fit.r_squared:.3f}",
                    )
            panel.set_title(f"class {names[k] if names else k}")
        figure.supxlabel("logit of the class, the others at rest", fontsize=9)
        figure.supylabel("objective", fontsize=9)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(
            handles,
            labels,
            loc="outside upper center",
            ncols=len(labels),
            title=title or None,
            title_fontproperties={"weight": "bold", "size": 10},
        )
    return figure
