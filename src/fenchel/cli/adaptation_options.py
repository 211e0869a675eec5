"""The options that say how a network is adapted, the same for images in a folder and over HTTP."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from fenchel.cli import completion
from fenchel.cli.model_options import MODELS_HELP

MODEL, IMAGES, ADAPTATION = "Model", "Images", "Adaptation"
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
SizeOption = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=IMAGES,
        help="Resize the short side and cut a centre square of this size.",
    ),
]
GrayOption = Annotated[
    bool, typer.Option("--gray", rich_help_panel=IMAGES, help="Read images with one channel.")
]
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
SettingsOption = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=ADAPTATION,
        metavar="FILE|NAME",
        help="What `fenchel calibrate` found for the model; or the name of a data set, such as cifar10, for "
        "which the method's authors published settings.",
        show_default="the file beside the checkpoint, if there is one",
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
    str | None,
    typer.Option(
        metavar="NUMBER|auto",
        rich_help_panel=ADAPTATION,
        help="auto: three rates side by side, of which the one whose predictions look best answers; three "
        "times the work.",
        show_default="the method's own, or 0.001",
    ),
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


def learning_rate_in(text: str | None) -> float | Literal["auto"] | None:
    """What `--learning-rate` says."""
    if text is None or text == "auto":
        return text  # type: ignore[return-value]
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not rate >= 0:
        raise ValueError(f"learning_rate= is a number of at least 0, or auto; got {text!r}.")
    return rate
