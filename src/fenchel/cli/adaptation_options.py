"""The options that say how a network is adapted, the same for images in a folder and over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from fenchel.cli import completion
from fenchel.cli.model_options import MODELS_HELP

MODEL, ADAPTATION = "Model", "Adaptation"
"""The panels of the help in which they are shown."""

AdaptedModelOption = Annotated[
    str,
    typer.Option(
        metavar="FILE.py:NAME",
        rich_help_panel=MODEL,
        autocompletion=completion.models_and_zoo,
        help=MODELS_HELP,
    ),
]
MeanOption = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=MODEL,
        help="For models that expect normalised images: 0.49,0.48,0.45",
    ),
]
StdOption = Annotated[str | None, typer.Option(rich_help_panel=MODEL, help="With --mean.")]
MethodOption = Annotated[
    str,
    typer.Option(
        rich_help_panel=ADAPTATION,
        autocompletion=completion.methods,
        help="See `fenchel list methods`; options follow: hard:threshold=0.9, learned:path=FILE.",
    ),
]
ProtectOption = Annotated[
    str | None,
    typer.Option(
        metavar="auto|watch|off",
        rich_help_panel=ADAPTATION,
        help="auto: notice harm and act; watch: notice and say it; off: the bare step.",
        show_default="auto, or watch for a method that you name",
    ),
]
PublishedSettingsOption = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=ADAPTATION,
        help="What the method's authors published for a data set, such as cifar10.",
    ),
]
OptimizerOption = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=ADAPTATION,
        help="sgd or adam.",
        show_default="the method's own, or sgd",
    ),
]
LearningRateOption = Annotated[
    float | None,
    typer.Option(min=0.0, rich_help_panel=ADAPTATION, show_default="the method's own, or 0.001"),
]
StatisticsOption = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=ADAPTATION,
        help="auto, batch, source, the weight in (0, 1) of each batch in a running mix, mix:0.1 (source "
        "and batch) or note:4 (corrected per sample).",
        show_default="auto, or what suits the method",
    ),
]
MovingOption = Annotated[
    str | None,
    typer.Option(
        "--parameters",
        metavar="SELECTION",
        rich_help_panel=ADAPTATION,
        help="What moves: normalization, last:1, all, or names and patterns separated by commas.",
        show_default="the method's own, or normalization",
    ),
]
