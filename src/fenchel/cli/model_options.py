"""The options that name a model, the same in every verb, and what a sweep becomes with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fenchel.cli import completion
from fenchel.cli.console import err
from fenchel.options import key_or_index

if TYPE_CHECKING:
    from fenchel.bench.sweep import Sweep
    from fenchel.models import Checkpoint

MODELS_HELP = (
    "FILE.py:NAME or MODULE:NAME (your function, class or network), timm:NAME, torchvision:NAME, a model of "
    "this library, a checkpoint, zoo:NAME or pretrained:NAME; arguments follow: net.py:build:width=8."
)
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="FILE.py:NAME",
        autocompletion=completion.models_and_zoo,
        help=f"The source model: {MODELS_HELP}",
    ),
]
WeightsOption = Annotated[
    Path | None,
    typer.Option(
        "--weights", help="Its weights: .safetensors, or .pt/.pth read without running code."
    ),
]
TrainedWithOption = Annotated[
    str | None,
    typer.Option(
        "--trained-with",
        metavar="LOSS",
        autocompletion=completion.losses,
        help="The loss it was trained with: poly:epsilon=6, cross-entropy, ..., or FILE.py:FUNCTION for "
        "your own. A checkpoint tells it.",
    ),
]
LogitsOption = Annotated[
    str | None,
    typer.Option(
        "--logits",
        metavar="KEY|INDEX",
        help="Where the logits are in what the model returns, if that is no tensor.",
    ),
]
DimOption = Annotated[
    int | None,
    typer.Option("--dim", help="The axis of the classes, for logits of more than two axes."),
]
ParametersOption = Annotated[
    str | None,
    typer.Option(
        "--parameters",
        metavar="SELECTION",
        help="Which parameters move: normalization, last:1, all, or names and patterns separated by "
        "commas: 'layer4.*,fc.*'.",
    ),
]


def where_logits_are(text: str | None) -> str | int | None:
    """What `--logits` says: a key, or a position if it is a whole number."""
    return None if text is None else key_or_index(text)


def selected_parameters(text: str) -> str | list[str]:
    """What `--parameters` says: a policy, a name or a pattern; or several of them, separated by commas."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    return names if len(names) > 1 else text.strip()


def tell_caution(caution: str) -> None:
    """What the user of a model should know, in yellow on standard error; nothing for an empty text."""
    if caution:
        told = caution.replace("weights=", "--weights")
        err.print(told, style="yellow", soft_wrap=True, markup=False, highlight=False)


def asked_sweep(
    path: Path,
    *,
    model: str | None,
    weights: Path | None,
    trained_with: str | None,
    logits: str | None,
    dim: int | None,
    parameters: str | None,
) -> Sweep:
    """The sweep of a file, with what the command line says about its models.

    `--model` takes the place of the sweep's models; the other options hold for every model and method.
    """
    from fenchel.bench.sweep import ModelChoice
    from fenchel.bench.sweep_file import read_sweep

    if model is None and (weights is not None or trained_with is not None):
        raise ValueError("weights= and trained_with= belong to a model. Pass model= as well.")
    own = []
    if model is not None:
        own = [
            ModelChoice(
                name=from_here(model),
                weights=None if weights is None else str(weights.resolve()),
                trained_with=None if trained_with is None else own_code_from_here(trained_with),
            )
        ]
    sweep = read_sweep(path, own)
    if logits is not None or dim is not None:
        given = {"logits": where_logits_are(logits), "dim": dim}
        chosen = {name: value for name, value in given.items() if value is not None}
        models = [replace(choice, **chosen) for choice in sweep.sources]  # type: ignore[arg-type]
        sweep = replace(sweep, checkpoints=(), models=models)
    if parameters is not None:
        grid = {"parameters": [selected_parameters(parameters)]}
        methods = [replace(choice, grid={**choice.grid, **grid}) for choice in sweep.methods]
        sweep = replace(sweep, methods=methods)
    return sweep


def one_model(
    checkpoint: Path | None, model: str | None, weights: Path | None, trained_with: str | None
) -> Checkpoint:
    """The model that `--checkpoint`, or `--model` with its companions, names."""
    from fenchel.models import load_checkpoint, open_model

    if checkpoint is not None:
        if model is not None or weights is not None or trained_with is not None:
            raise ValueError(
                "checkpoint= names a model, its weights and its loss. Leave it out, or pass it alone."
            )
        return load_checkpoint(checkpoint)
    if model is None:
        raise ValueError("a source model is needed. Pass checkpoint=, or model= with weights=.")
    opened = open_model(model, weights=weights, trained_with=trained_with)
    if not opened.loss_spec:
        raise ValueError(
            f"the loss that {opened.spec} was trained with must be known; it was not given. Pass "
            "trained_with=, for example trained_with=cross-entropy."
        )
    tell_caution(opened.caution)
    return opened


def from_here(model: str) -> str:
    """A model with whole paths: those on the command line are relative to the current folder."""
    from fenchel.models.opening import read_spec
    from fenchel.models.places import has_scheme

    found = read_spec(model)
    if found.kind == "checkpoint" and not has_scheme(model):
        return str(Path(found.name).resolve())
    return own_code_from_here(model)


def own_code_from_here(text: str) -> str:
    """`FILE.py:NAME` with the whole path of the file; anything else as it is."""
    from fenchel.own_code import located

    return located(text, Path.cwd())
