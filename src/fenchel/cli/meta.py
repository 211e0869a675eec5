"""`fenchel meta`: learn the test-time objective itself, fit it, and draw it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fenchel.cli.console import err, out, print_json
from fenchel.cli.devices import pick_device

if TYPE_CHECKING:
    from torch import Tensor

    from fenchel.models import Checkpoint
    from fenchel.objectives import LearnedObjective
    from fenchel.train.meta import Fits, Target

app = typer.Typer(
    help="Learn the test-time objective by differentiating through the adaptation step.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

FIT_NAME = "fit.json"
SCORES_NAME = "scores.json"
FIT_SCORES_NAME = "fit-scores.json"

LearnedFile = Annotated[
    Path, typer.Argument(help="What `fenchel meta train` wrote: the file, or its folder.")
]
CheckpointOption = Annotated[
    Path | None, typer.Option(help="The source model; by default the one it was learned with.")
]
RootOption = Annotated[
    Path | None, typer.Option(help="Folder of the data; by default that of `data fetch`.")
]
RangeOption = Annotated[
    str | None,
    typer.Option(
        "--range", metavar="LOW:HIGH", help="Even logits of this range instead of the model's own."
    ),
]
SamplesOption = Annotated[int, typer.Option(min=5, help="Logits to fit on.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]


@app.command("train")
def train(
    checkpoint: Annotated[
        Path, typer.Option(help="The source model: a checkpoint of `fenchel train`, or its folder.")
    ],
    data: Annotated[
        str, typer.Option(help="cifar10-c, or any labelled target: `usps:digits=True`.")
    ],
    corruption: Annotated[
        list[str] | None,
        typer.Option(help="Learn on this one; repeatable. Default: the four validation ones."),
    ] = None,
    severity: Annotated[int, typer.Option(min=1, max=5)] = 5,
    score_corruption: Annotated[
        list[str] | None,
        typer.Option(help="Score on this one; repeatable. Default: the fifteen test ones."),
    ] = None,
    task_loss: Annotated[
        str, typer.Option(help="Of the adapted model: cross-entropy or squared.")
    ] = "cross-entropy",
    order: Annotated[
        str, typer.Option(help="first or second; they differ where --unroll is above 1.")
    ] = "first",
    unroll: Annotated[
        int, typer.Option(min=1, help="Batches through which an update differentiates.")
    ] = 1,
    setting: Annotated[
        str, typer.Option(help="mixed: all shifts in a batch; reset: one shift after the other.")
    ] = "mixed",
    embedding: Annotated[int, typer.Option(help="16, 32 or 64.")] = 32,
    feed_forward: Annotated[int, typer.Option(help="32, 64 or 128.")] = 64,
    layers: Annotated[int, typer.Option(help="Encoder layers, 1 or 2.")] = 1,
    heads: Annotated[int, typer.Option(help="Of the attention.")] = 4,
    hidden_layers: Annotated[int, typer.Option(help="Of the head, 1 or 2.")] = 1,
    epochs: Annotated[int, typer.Option(help="In each the model starts from the source.")] = 100,
    batches: Annotated[int, typer.Option(help="In an epoch.")] = 50,
    batch_size: Annotated[int, typer.Option()] = 200,
    every: Annotated[int, typer.Option(help="Batches from one update to the next.")] = 5,
    learning_rate: Annotated[float, typer.Option(help="Of the objective's Adam.")] = 1e-3,
    weight_decay: Annotated[float, typer.Option(help="Of the objective's Adam.")] = 0.0,
    schedule: Annotated[str, typer.Option(help="constant or cosine.")] = "constant",
    optimizer: Annotated[str, typer.Option(help="Of the adaptation: sgd or adam.")] = "sgd",
    inner_learning_rate: Annotated[float, typer.Option(help="Of the adaptation.")] = 1e-3,
    learn_images: Annotated[
        str | None,
        typer.Option(metavar="START:STOP", help="Images to learn on. Default: one half."),
    ] = None,
    score_images: Annotated[
        str | None,
        typer.Option(metavar="START:STOP", help="Images to score on. Default: the others."),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many images of each part.")] = None,
    scoring: Annotated[
        bool, typer.Option("--score/--no-score", help="Compare with TENT and the conjugate.")
    ] = True,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    folder: Annotated[
        Path, typer.Option("--out", help="Folder of the run; the same command continues it.")
    ] = Path("runs/meta"),
    root: RootOption = None,
    device: DeviceOption = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads; part of the run.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Learn an objective for a trained model, and score it on images it never saw.

    Kill it at any moment: the same command continues to the bit-identical result.

    [bold]Examples[/bold]

        fenchel meta train --checkpoint runs/ce --data cifar10-c --task-loss cross-entropy --out runs/meta-ce

        fenchel meta train --checkpoint runs/svhn --data usps:digits=True --out runs/meta-usps
    """
    import torch

    from fenchel.api import OPTIMIZERS
    from fenchel.models import load_checkpoint
    from fenchel.names import unknown
    from fenchel.train.meta import MetaRun, Recipe, Target, learn

    if optimizer not in OPTIMIZERS:
        raise unknown("optimizer", optimizer, OPTIMIZERS)
    recipe = Recipe(
        task_loss=task_loss,
        sizes={
            "embedding": embedding,
            "feed_forward": feed_forward,
            "layers": layers,
            "heads": heads,
            "hidden_layers": hidden_layers,
        },
        optimizer=OPTIMIZERS[optimizer](learning_rate=inner_learning_rate),
        epochs=epochs,
        batches=batches,
        batch_size=batch_size,
        every=every,
        unroll=unroll,
        order=order,  # type: ignore[arg-type]
        setting=setting,  # type: ignore[arg-type]
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        schedule=schedule,
        seed=seed,
    )
    source = load_checkpoint(checkpoint)
    target = Target.chosen(
        source,
        data,
        corruption or (),
        score_corruption or (),
        severity=severity,
        learn_images=learn_images,
        score_images=score_images,
        limit=limit,
        root=root,
    )
    if threads is not None:
        torch.set_num_threads(threads)
    run = MetaRun(
        source=source,
        shifts=target.learn_shifts(),
        recipe=recipe,
        out=folder,
        facts={"target": target.record(), "checkpoint": str(checkpoint)},
        device=pick_device(device),
    )
    _announce(run.source, target, folder)
    learned = learn(run)
    errors = (
        _scored(learned, {}, source, target, run.device, folder / SCORES_NAME) if scoring else {}
    )
    _conclude({"objective": str(folder / "learned.safetensors")}, errors, as_json)


@app.command("fit")
def fit(
    file: LearnedFile,
    checkpoint: CheckpointOption = None,
    root: RootOption = None,
    logit_range: RangeOption = None,
    samples: SamplesOption = 2000,
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
    """
    from fenchel.models.files import write_atomically
    from fenchel.train.meta import fit as fit_both

    place = pick_device(device)
    learned, path = _read(file)
    logits = _logits(learned, checkpoint, root, logit_range, samples, place)
    fits = fit_both(learned, logits)
    record = {**fits.record(), "resting": logits.double().mean(0).tolist()}
    target_file = out_file or path.parent / FIT_NAME
    write_atomically(target_file, (json.dumps(record, indent=2) + "\n").encode())
    errors = {}
    if scoring:
        source, target = _origin(learned, checkpoint, root)
        fitted = {f"{name} fit": found.objective for name, found in fits.by_name().items()}
        scores = path.parent / FIT_SCORES_NAME
        errors = _scored(learned, fitted, source, target, place, scores)
    if not as_json:
        _show_fits(fits)
    _conclude({"fit": str(target_file), **record}, errors, as_json)


@app.command("plot")
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
) -> None:
    """Draw a learned objective and its fits as one logit moves and the others stay.

    [bold]Example[/bold]

        fenchel meta plot runs/meta-ce --class 3 --out figures/learned.svg
    """
    import torch

    from fenchel.report.learned import learned_figure
    from fenchel.report.style import save
    from fenchel.train.meta import Fits

    learned, path = _read(file)
    found = fit_file or path.parent / FIT_NAME
    if not found.is_file():
        raise FileNotFoundError(
            f"the figure needs the fits; there are none at {str(found)!r}. "
            f"Run `fenchel meta fit {file}` first, or pass --fit."
        )
    record = json.loads(found.read_text())
    fits = Fits.from_record(record)
    resting = torch.tensor(record.get("resting", ()), dtype=torch.float64)
    classes = learned.network.sizes["classes"]
    if len(resting) != classes:
        raise ValueError(
            f"the fits must be those of this objective, of {classes} classes; {str(found)!r} has "
            f"{len(resting)}. Run `fenchel meta fit {file}` again."
        )
    figure = learned_figure(
        learned,
        fits,
        resting,
        moving=moving or range(min(3, classes)),
        names=learned.protocol.get("classes", ()),
        title=_title(learned),
    )
    target = figure_file or path.parent / "learned.png"
    save(figure, target)
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
    from fenchel.models import load_checkpoint
    from fenchel.train.meta import Target

    protocol = learned.protocol
    if "target" not in protocol or "source" not in protocol:
        raise ValueError(
            "the objective's file does not say what it was learned on, so images to score it on "
            "cannot be chosen. Pass a file that `fenchel meta train` wrote, or --range to fit it."
        )
    source = load_checkpoint(checkpoint or Path(protocol["checkpoint"]))
    if source.digest != protocol["source"]["digest"]:
        raise ValueError(
            f"the objective was learned for the model {protocol['source']['digest'][:12]}; "
            f"this checkpoint is {source.digest[:12]}. Pass the right one with --checkpoint."
        )
    return source, Target.from_record(protocol["target"], root=root)


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


def _scored(
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


def _announce(source: Checkpoint, target: Target, folder: Path) -> None:
    split = target.split
    what = ", ".join(target.corruptions) or "as it is"
    err.print(
        f"learning an objective for {escape(source.metadata.architecture)} trained with "
        f"{escape(source.loss_spec)} on {escape(target.data)} ({what}): {len(split.learn)} images to "
        f"learn on, {len(split.score)} others to score on, in {escape(str(folder))}",
        soft_wrap=True,
        highlight=False,
    )


def _show_fits(fits: Fits) -> None:
    for name, found in fits.by_name().items():
        out.print(
            f"{name}: R² {found.r_squared:.4f}, AIC {found.aic:.1f}, {found.objective!r}",
            soft_wrap=True,
            highlight=False,
        )
    out.print(f"better explained by: {fits.better} (lower AIC)", highlight=False)


def _conclude(facts: dict[str, Any], errors: dict[str, dict[str, float]], as_json: bool) -> None:
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
        out.print(table)
    for name in ("objective", "fit"):
        if name in facts:
            out.print(f"{name}: {escape(facts[name])}", soft_wrap=True, highlight=False)


def _title(learned: LearnedObjective) -> str:
    source = learned.protocol.get("source", {})
    task = learned.protocol.get("recipe", {}).get("task_loss")
    return f"source {source['loss']}, task {task}" if source and task else ""
