"""`fenchel calibrate`: settings for one model, from images of its source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from fenchel.cli.adaptation_options import (
    ADAPTATION,
    IMAGES,
    MODEL,
    AdaptedModelOption,
    GrayOption,
    MeanOption,
    MethodOption,
    OptimizerOption,
    SizeOption,
    StatisticsOption,
    StdOption,
)
from fenchel.cli.adapting import labelled_images, number_or_text, require_free, say_about
from fenchel.cli.console import out, pick_device, print_json, print_table
from fenchel.cli.mistakes import options_of
from fenchel.cli.model_options import (
    DimOption,
    LogitsOption,
    TrainedWithOption,
    WeightsOption,
    where_logits_are,
)

if TYPE_CHECKING:
    from fenchel.methods.calibrated import Calibration


def calibrate(
    model: AdaptedModelOption,
    images: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER|FILE.npy|FILE.npz",
            rich_help_panel=IMAGES,
            help="A few hundred images like those the model was trained on; folders by class, or an .npz "
            "with labels, give labels.",
        ),
    ],
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npy", rich_help_panel=IMAGES, help="Their classes, one number per image."
        ),
    ] = None,
    without_labels: Annotated[
        bool,
        typer.Option(
            "--without-labels",
            rich_help_panel=IMAGES,
            help="Let the model's own predictions be the labels, even if there are others.",
        ),
    ] = False,
    most: Annotated[
        int,
        typer.Option(
            "--limit", min=1, rich_help_panel=IMAGES, help="Use so many of them, drawn at random."
        ),
    ] = 1000,
    size: SizeOption = None,
    gray: GrayOption = False,
    weights: WeightsOption = None,
    trained_with: TrainedWithOption = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|folders",
            rich_help_panel=MODEL,
            help="The names of the classes, as for `fenchel adapt`.",
        ),
    ] = None,
    logits: LogitsOption = None,
    dim: DimOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    method: MethodOption = "protected",
    optimizer: OptimizerOption = None,
    statistics: StatisticsOption = None,
    batch_size: Annotated[
        int,
        typer.Option(min=1, rich_help_panel=ADAPTATION, help="That of the stream to come."),
    ] = 100,
    trials: Annotated[
        int,
        typer.Option(
            min=1,
            rich_help_panel=ADAPTATION,
            help="Settings that are tried at most; each is a run over six shifts.",
        ),
    ] = 10,
    length: Annotated[
        int,
        typer.Option(min=1, rich_help_panel=ADAPTATION, help="Images per shift in such a run."),
    ] = 1000,
    out_file: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE.safetensors",
            help="The file to write.",
            show_default="MODEL.calibration.safetensors beside a checkpoint, where `fenchel adapt` finds it",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
    seed: Annotated[int, typer.Option()] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the settings as JSON.")] = False,
) -> None:
    """Choose how a model adapts, from images of its source; no image of the target is needed.

    The images are shifted here (noise, blur, spatter, colours, rotation, fewer shades), and the settings with
    the fewest errors on them are kept, with the monitor's thresholds. With labels that is most reliable;
    without, the model's own predictions on the images as they are take their place. See docs/settings.md.

    [bold]Examples[/bold]

        fenchel calibrate --model net.py:build --weights net.pt --trained-with poly:epsilon=6 --images train/

        fenchel calibrate --model runs/ce --images source.npz --trials 5

        fenchel adapt --model runs/ce --images photos/ --settings runs/ce.calibration.safetensors
    """
    import torch

    from fenchel.calibration import calibrate as chosen
    from fenchel.predict.images import read_images
    from fenchel.predict.opening import Adaptation
    from fenchel.progress import progress

    place = pick_device(device)
    told = Adaptation(
        model=model,
        weights=weights,
        trained_with=trained_with,
        logits=where_logits_are(logits),
        dim=dim,
        mean=mean,
        std=std,
        size=size,
        gray=gray,
        seed=seed,
        device=place,
    )
    opened = told.open()
    target = out_file or _beside(opened.source.path, model)
    require_free([target], resume=False, force=force)
    say_about(opened.source, told=trained_with is not None)
    pile = labelled_images(
        opened.adapter,
        read_images(images, size=size, mode=told.image_mode),
        classes,
        opened.source,
        device=place,
        options=options_of(calibrate),
    )
    order = pile.images.order(shuffle=True, seed=seed)
    samples, kept = told.pixels(pile.images, order[:most])
    given = None
    if not without_labels:
        given = _labels(labels, pile.images.labels, len(pile.images))
    found_labels = None if given is None else torch.as_tensor(given[kept])
    if found_labels is not None and bool((found_labels < 0).any()):
        known = found_labels >= 0
        samples, found_labels = samples[known.to(samples.device)], found_labels[known]
    settings: dict[str, Any] = {
        "optimizer": optimizer,
        "statistics": number_or_text(statistics),
        "logits": where_logits_are(logits),
        "dim": dim,
    }
    with progress("calibrating", total=None) as bar:
        calibration = chosen(
            opened.network,
            opened.adapter.settings.loss,  # type: ignore[arg-type]
            samples,
            found_labels,
            method=method,
            batch_size=batch_size,
            trials=trials,
            length=length,
            input_range=(0.0, 1.0),
            seed=seed,
            advance=lambda done, total: bar.advance(),
            **{name: value for name, value in settings.items() if value is not None},
        )
    calibration.save(target)
    if json:
        print_json({"file": str(target), **calibration.described()})
    else:
        _tell(calibration, target)


def _beside(checkpoint: Path | None, model: str) -> Path:
    """Where the calibration goes if nobody says it."""
    from fenchel.methods.calibrated import ENDING, Calibration
    from fenchel.models import zoo

    if checkpoint is not None and checkpoint.parent != zoo.folder():  # which belongs to the library
        return Calibration.beside(checkpoint)
    return Path(model.partition(":")[2] or Path(model).stem).with_suffix(ENDING)


def _labels(file: Path | None, found: Any, count: int) -> Any:
    """The labels in a file, else those that came with the images; None if there are none."""
    if file is None:
        return found
    from fenchel.data.formats.npy import read_npy

    labels = read_npy(file)
    if labels.shape != (count,):
        raise ValueError(
            f"labels= is one class number per image, {count} of them; {file} has shape {labels.shape}."
        )
    return labels.astype("int64")


def _tell(calibration: Calibration, target: Path) -> None:
    trials = list(calibration.protocol["trials"])
    names = list(
        dict.fromkeys(name for trial in trials for name in trial if name != "error_percent")
    )
    table = Table(*names, "error %", "", box=None)
    for trial in trials:
        settings = {name: value for name, value in trial.items() if name != "error_percent"}
        chosen = settings == dict(calibration.settings)
        values = [_shown(trial.get(name)) for name in names]
        table.add_row(*values, f"{trial['error_percent']:.2f}", "chosen" if chosen else "")
    print_table(table)
    judged = "labels" if calibration.level == "labels" else "the model's own predictions"
    images = calibration.protocol["images"]
    out.print(f"judged by {judged} on {images} images of the source, shifted", highlight=False)
    out.print(f"written: {target}", highlight=False, soft_wrap=True)
    out.print(
        "use it: fenchel adapt ... --settings FILE, or settings= of fenchel.adapt", highlight=False
    )


def _shown(value: object) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
