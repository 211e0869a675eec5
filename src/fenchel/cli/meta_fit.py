"""`fenchel meta fit` and `plot`, and how every verb of `fenchel meta` shows its scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fenchel.cli.console import out, pick_device, print_json, print_table

if TYPE_CHECKING:
    from torch import Tensor

    from fenchel.models import Checkpoint
    from fenchel.objectives import LearnedObjective
    from fenchel.train.meta import Fits, Target

RootOption = Annotated[
    Path | None, typer.Option(help="Folder of the data; by default that of `data fetch`.")
]

DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]


def named(name: str, weights: Path | None, trained_with: str | None) -> dict[str, str]:
    """How the source model was named, for the protocol of what is learned with it."""
    told = {"weights": weights, "trained_with": trained_with}
    return {"checkpoint": name} | {key: str(value) for key, value in told.items() if value}


def scored(
    learned: LearnedObjective,
    others: dict[str, Any],
    source: Checkpoint,
    target: Target,
    device: str,
    file: Path,
) -> dict[str, dict[str, float]]:
    """Errors on the score images, by objective and shift, under the protocol of the learning."""
    from fenchel.api import OPTIMIZERS
    from fenchel.train.meta import Scoring, baselines, score

    recipe = learned.protocol["recipe"]
    inner = {k.removeprefix("inner_"): v for k, v in recipe.items() if k.startswith("inner_")}
    scoring = Scoring(
        source=source,
        shifts=target.score_shifts(),
        optimizer=OPTIMIZERS[recipe["optimizer"]](**inner),
        batch_size=recipe["batch_size"],
        seed=recipe["seed"],
        device=device,
    )
    return score(scoring, {**baselines(source), "learned": learned, **others}, file)


def conclude(facts: dict[str, Any], errors: dict[str, dict[str, float]], as_json: bool) -> None:
    """Print the errors as a table and where the files lie, or everything as JSON."""
    from fenchel.train.meta import means

    if as_json:
        print_json({**facts, "errors": errors, "mean_errors": means(errors)})
        return
    if errors:
        table = Table(title="online error (%)", title_justify="left", box=None, pad_edge=False)
        for heading in ("shift", *errors):
            table.add_column(heading, justify="left" if heading == "shift" else "right")
        for shift in next(iter(errors.values())):
            table.add_row(shift, *(f"{by[shift]:.2f}" for by in errors.values()))
        table.add_row("mean", *(f"{value:.2f}" for value in means(errors).values()), style="bold")
        print_table(table)
    for name in ("objective", "fit"):
        if name in facts:
            out.print(f"{name}: {escape(facts[name])}", soft_wrap=True, highlight=False)


FIT_SCORES_NAME = "fit-scores.json"

LearnedFile = Annotated[
    Path, typer.Argument(help="What `fenchel meta train` wrote: the file, or its folder.")
]

CheckpointOption = Annotated[
    Path | None, typer.Option(help="The source model; by default the one it was learned with.")
]

RangeOption = Annotated[
    str | None,
    typer.Option(
        "--range", metavar="LOW:HIGH", help="Even logits of this range instead of the model's own."
    ),
]

SamplesOption = Annotated[int, typer.Option(min=5, help="Logits to fit on.")]


def fit(
    file: LearnedFile,
    checkpoint: CheckpointOption = None,
    root: RootOption = None,
    logit_range: RangeOption = None,
    samples: SamplesOption = 2000,
    symmetrised: Annotated[
        bool,
        typer.Option("--symmetrised", help="Fit to its mean over orders of the classes."),
    ] = False,
    scoring: Annotated[
        bool, typer.Option("--score", help="Adapt with the fits, too, beside the learned one.")
    ] = False,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Default: fit.json beside the file.")
    ] = None,
    device: DeviceOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Fit a scaled entropy and a quadratic to a learned objective, and say which explains it.

    [bold]Example[/bold]

        fenchel meta fit runs/meta-ce --score

        fenchel meta fit runs/meta-ce --symmetrised --out runs/meta-ce/symmetrised.json
    """
    from fenchel.objectives import Symmetrised
    from fenchel.train.meta import fit as fit_both
    from fenchel.train.meta.fit import FILE_NAME

    place = pick_device(device)
    learned, path = _read(file)
    explained = Symmetrised(objective=learned) if symmetrised else learned
    fits = fit_both(explained, _logits(learned, checkpoint, root, logit_range, samples, place))
    target_file = out_file or path.parent / FILE_NAME
    fits.write(target_file)
    errors: dict[str, dict[str, float]] = {}
    facts = {"fit": str(target_file), **fits.record()}
    if scoring:
        source, target = _origin(learned, checkpoint, root)
        fitted = {f"{name} fit": found.objective for name, found in fits.by_name().items()}
        scores = path.parent / FIT_SCORES_NAME
        errors = scored(learned, fitted, source, target, place, scores)
        facts["scores"] = str(scores)
    if not as_json:
        _show_fits(fits)
    conclude(facts, errors, as_json)


def plot(
    file: LearnedFile,
    fit_file: Annotated[
        Path | None,
        typer.Option("--fit", help="What `fenchel meta fit` wrote. Default: beside the file."),
    ] = None,
    moving: Annotated[
        list[int] | None, typer.Option("--class", help="Class whose logit moves; repeatable.")
    ] = None,
    figure_file: Annotated[
        Path | None, typer.Option("--out", help="PNG, SVG or PDF. Default: learned.png beside it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Name the files as JSON.")] = False,
) -> None:
    """Draw a learned objective and its fits as one logit moves and the others stay.

    [bold]Example[/bold]

        fenchel meta plot runs/meta-ce --class 3 --out figures/learned.svg
    """
    from fenchel.report.learned import learned_figure
    from fenchel.report.style import save
    from fenchel.train.meta import Fits
    from fenchel.train.meta.fit import FILE_NAME

    learned, path = _read(file)
    found = fit_file or path.parent / FILE_NAME
    if not found.is_file():
        raise FileNotFoundError(
            f"the figure needs the fits; there are none at {str(found)!r}. "
            f"Run `fenchel meta fit {file}` first, or pass --fit."
        )
    fits = Fits.from_record(json.loads(found.read_text()))
    classes = learned.network.sizes["classes"]
    if len(fits.resting) != classes:
        raise ValueError(
            f"the fits must be those of this objective, of {classes} classes; {str(found)!r} has "
            f"{len(fits.resting)}. Run `fenchel meta fit {file}` again."
        )
    figure = learned_figure(
        learned,
        fits,
        moving=moving or range(min(3, classes)),
        names=learned.protocol.get("classes", ()),
        title=_title(learned),
    )
    target = figure_file or path.parent / "learned.png"
    save(figure, target)
    if as_json:
        print_json({"figure": str(target), "objective": str(path), "fit": str(found)})
        return
    out.print(f"figure: {escape(str(target))}", soft_wrap=True, highlight=False)


def _read(file: Path) -> tuple[LearnedObjective, Path]:
    from fenchel.objectives import LearnedObjective
    from fenchel.train.meta.learn import FILE_NAME

    path = file / FILE_NAME if file.is_dir() else file
    return LearnedObjective.load(path), path


def _origin(
    learned: LearnedObjective, checkpoint: Path | None, root: Path | None
) -> tuple[Checkpoint, Target]:
    """The source and the data that the objective was learned with, checked by their digests."""
    from fenchel.models import open_model
    from fenchel.train.meta import Target

    protocol = learned.protocol
    if "target" not in protocol or "source" not in protocol:
        raise ValueError(
            "the objective's file does not say what it was learned on, so images to score it on "
            "cannot be chosen. Pass a file that `fenchel meta train` wrote, or --range to fit it."
        )
    target = Target.from_record(protocol["target"], root=root)
    source = target.known_to(
        open_model(
            protocol["checkpoint"],
            weights=protocol.get("weights"),
            trained_with=protocol.get("trained_with"),
        )
        if checkpoint is None
        else open_model(str(checkpoint))
    )
    if source.digest != protocol["source"]["digest"]:
        raise ValueError(
            f"the objective was learned for the model {protocol['source']['digest'][:12]}; "
            f"this checkpoint is {source.digest[:12]}. Pass the right one with --checkpoint."
        )
    return source, target


def _logits(
    learned: LearnedObjective,
    checkpoint: Path | None,
    root: Path | None,
    logit_range: str | None,
    samples: int,
    device: str,
) -> Tensor:
    """Logits to fit on: of the source on the images learned on, or evenly from a range."""
    from fenchel.train.meta import source_logits, uniform_logits

    if logit_range is None:
        source, target = _origin(learned, checkpoint, root)
        return source_logits(source, target.learn_shifts(), samples, device=device)
    low, _, high = logit_range.partition(":")
    try:
        limits = float(low), float(high)
    except ValueError:
        raise ValueError(
            f"a range of logits is written LOW:HIGH, such as -5:15; got {logit_range!r}."
        ) from None
    return uniform_logits(samples, learned.network.sizes["classes"], *limits)


def _show_fits(fits: Fits) -> None:
    for name, found in fits.by_name().items():
        out.print(
            f"{name}: R² {found.r_squared:.4f} (beyond linear {found.beyond_linear:.4f}), "
            f"AIC {found.aic:.1f}, {found.objective!r}",
            soft_wrap=True,
            highlight=False,
        )
    out.print(f"better explained by: {fits.better} (lower AIC)", highlight=False)


def _title(learned: LearnedObjective) -> str:
    source = learned.protocol.get("source", {})
    task = learned.protocol.get("recipe", {}).get("task_loss")
    return f"source {source['loss']}, task {task}" if source and task else ""
