"""`fenchel adapt`: adapted predictions of any model on any images."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fenchel.cli import completion
from fenchel.cli.console import EXIT_HARMFUL, err, out, pick_device, print_json
from fenchel.cli.mistakes import in_options, options_of, warnings_told_in
from fenchel.cli.model_options import (
    MODELS_HELP,
    selected_parameters,
    tell_caution,
    where_logits_are,
)
from fenchel.names import parse_spec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from fenchel.adapters import Adapter
    from fenchel.losses import Loss
    from fenchel.models import Checkpoint
    from fenchel.predict import ImageFiles, Labelled, Run, Summary

_MODEL, _IMAGES, _ADAPTATION, _FILES = "Model", "Images", "Adaptation", "Files"


def adapt_images(
    model: Annotated[
        str,
        typer.Option(
            metavar="FILE.py:NAME",
            rich_help_panel=_MODEL,
            autocompletion=completion.models_and_zoo,
            help=MODELS_HELP,
        ),
    ],
    images: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER|FILE.npy",
            rich_help_panel=_IMAGES,
            help="A folder of images (folders by class give labels), an .npy array, or an .npz with labels.",
        ),
    ],
    weights: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_MODEL,
            help="Weights: .safetensors, or .pt/.pth read without running code.",
        ),
    ] = None,
    trained_with: Annotated[
        str | None,
        typer.Option(
            metavar="LOSS",
            rich_help_panel=_MODEL,
            autocompletion=completion.losses,
            help="The loss the model was trained with: poly:epsilon=6, cross-entropy, ... "
            "(`fenchel list losses`), or MODULE:FUNCTION for your own.",
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|folders",
            rich_help_panel=_MODEL,
            help="The names of the classes in the order of the model's outputs: one per line, or JSON "
            "(a list, or index -> name). `folders`: the class folders of --images in sorted order.",
        ),
    ] = None,
    logits: Annotated[
        str | None,
        typer.Option(
            metavar="KEY|INDEX",
            rich_help_panel=_MODEL,
            help="Where the logits are in what the model returns.",
        ),
    ] = None,
    dim: Annotated[
        int | None, typer.Option(rich_help_panel=_MODEL, help="The axis of the classes.")
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_MODEL,
            help="For models that expect normalised images: 0.49,0.48,0.45",
        ),
    ] = None,
    std: Annotated[str | None, typer.Option(rich_help_panel=_MODEL, help="With --mean.")] = None,
    method: Annotated[
        str,
        typer.Option(
            rich_help_panel=_ADAPTATION,
            autocompletion=completion.methods,
            help="See `fenchel list methods`; options follow: hard:threshold=0.9, learned:path=FILE.",
        ),
    ] = "conjugate",
    settings: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_ADAPTATION,
            help="What the method's authors published for a data set, such as cifar10.",
        ),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_ADAPTATION,
            help="sgd or adam.",
            show_default="the method's own, or sgd",
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            min=0.0, rich_help_panel=_ADAPTATION, show_default="the method's own, or 0.001"
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=_ADAPTATION,
            help="The objective sees logits / temperature.",
            show_default="the objective's own",
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option(min=1, rich_help_panel=_ADAPTATION, help="Updates per batch.")
    ] = 1,
    statistics: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_ADAPTATION,
            help="batch, source, the weight in (0, 1) of each batch in a running mix, mix:0.1 (source and "
            "batch) or note:4 (corrected per sample).",
            show_default="the method's own, or batch",
        ),
    ] = None,
    parameters: Annotated[
        str | None,
        typer.Option(
            metavar="SELECTION",
            rich_help_panel=_ADAPTATION,
            help="What moves: normalization, last:1, all, or names and patterns separated by commas.",
            show_default="the method's own, or normalization",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, rich_help_panel=_IMAGES)] = 200,
    size: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=_IMAGES,
            help="Resize the short side and cut a centre square of this size.",
        ),
    ] = None,
    gray: Annotated[
        bool, typer.Option("--gray", rich_help_panel=_IMAGES, help="Read images with one channel.")
    ] = False,
    shuffle: Annotated[
        bool | None,
        typer.Option(
            rich_help_panel=_IMAGES,
            help="Random order (the default for class folders), or the order of the files.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            rich_help_panel=_IMAGES,
            help="Stop at the first image that cannot be read, rather than say so in its row.",
        ),
    ] = False,
    workers: Annotated[
        int,
        typer.Option(
            min=1, rich_help_panel=_IMAGES, help="Threads that read images ahead of the network."
        ),
    ] = 2,
    out_file: Annotated[
        Path,
        typer.Option(
            "--out", rich_help_panel=_FILES, help="Where the predictions go: .csv or .parquet."
        ),
    ] = Path("predictions.csv"),
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            rich_help_panel=_FILES,
            help="One line of JSON per batch: signals, verdict, events.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", rich_help_panel=_FILES, help="Write a page that shows the stream."
        ),
    ] = None,
    save_adapted: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.safetensors",
            rich_help_panel=_FILES,
            help="Write the adapted model, which predicts alone, and a card of how it was made.",
        ),
    ] = None,
    source_predictions: Annotated[
        str,
        typer.Option(
            metavar="auto|always|never",
            rich_help_panel=_FILES,
            help="When the source model predicts too (one more forward pass). auto: always where labels are "
            "known, else now and then, and where something looks wrong.",
        ),
    ] = "auto",
    top_k: Annotated[
        int,
        typer.Option(
            min=0, rich_help_panel=_FILES, help="Columns for so many of the most probable classes."
        ),
    ] = 0,
    save_every: Annotated[
        int,
        typer.Option(
            min=1, rich_help_panel=_FILES, help="Save the state after every so many batches."
        ),
    ] = 10,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            rich_help_panel=_FILES,
            help="Continue the run that wrote --out, from its last saved batch.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", rich_help_panel=_FILES, help="Overwrite what is there.")
    ] = False,
    seed: Annotated[int, typer.Option()] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Adapt a model to images while predicting them; the predictions go to a CSV file as they are made.

    Ctrl-C ends the run with what was done so far, and --resume continues it. Exit code 4: the run is
    complete, but adaptation looks harmful.

    [bold]Examples[/bold]

        fenchel adapt --model my_net.py:build --weights net.pt --trained-with poly:epsilon=6 --images photos/

        fenchel adapt --model zoo:svhn-resnet26-ce --images digits/ --log batches.jsonl --report page.html

        fenchel adapt --model my_net.py:build --trained-with cross-entropy --images photos/ --resume
    """
    from fenchel.api import adapt
    from fenchel.losses.own import open_loss
    from fenchel.models import open_model
    from fenchel.models.opening import read_spec
    from fenchel.predict import Choices, Run, interruptible, read_images, summarised
    from fenchel.predict.deploy import how_it_was_made
    from fenchel.predict.deploy import save_adapted as write_adapted
    from fenchel.predict.run import files_of
    from fenchel.predict.summary import as_entries

    place = pick_device(device)
    if report is not None and log is None:  # the page is made from it
        log = out_file.with_name(out_file.name + ".batches.jsonl")
    written = [*files_of(out_file, log), report, save_adapted]
    _require_free(written, resume=resume, force=force)
    found = read_images(images, size=size, mode="L" if gray else "RGB")
    source = open_model(model, weights=weights, trained_with=trained_with)
    loss = open_loss(source.loss_spec) if source.loss_spec else None
    _say_about(source, told=trained_with is not None)
    network = _normalised(source.model, mean, std)
    adapter = adapt(
        network.to(place),
        trained_with=loss,
        **_method(method, loss),
        settings=settings,
        optimizer=optimizer,
        learning_rate=learning_rate,
        temperature=temperature,
        steps=steps,
        statistics=_number_or_text(statistics),
        parameters=None if parameters is None else selected_parameters(parameters),
        logits=where_logits_are(logits),
        dim=dim,
        seed=seed,
    )
    pile = _labelled(adapter, found, classes, source, place)
    described = {
        "model": model,
        "model_digest": source.digest,
        "trained_with": source.loss_spec or None,
        "method": method,
        "settings": settings,
        **_moving(adapter),
        "temperature": temperature,
        "steps": steps,
        "size": size,
        "gray": gray,
        "mean": mean,
        "std": std,
    }
    choices = Choices(
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        device=place,
        source_predictions=source_predictions,  # type: ignore[arg-type]
        top_k=top_k,
        workers=workers,
        strict=strict,
        save_every=save_every,
    )
    with interruptible() as interruption, warnings_told_in(options_of(adapt_images)):
        run = Run(adapter, pile, out_file, log, choices, described, stop=lambda: bool(interruption))
        if resume and (done := run.resume()):
            err.print(
                f"continuing after {done} of {len(pile.images)} images",
                highlight=False,
                soft_wrap=True,
            )
        outcome = run.go()
    summary = summarised(outcome)
    entries = as_entries(outcome, summary) | {
        "labels": _in_options(pile.how) or None,
        "method": method,
        "settings": described | {"batch_size": batch_size, "seed": seed},
        "predictions": str(out_file),
        "log": None if log is None else str(log),
        "report": None if report is None else str(report),
        "adapted_model": None if save_adapted is None else str(save_adapted),
    }
    if save_adapted is not None:
        alone = adapter.adapted_model()
        write_adapted(
            save_adapted,
            alone if network is source.model else alone.network,  # type: ignore[arg-type]
            how_it_was_made(adapter, outcome, summary, described),
            metadata=source.metadata if read_spec(model).kind == "checkpoint" else None,
        )
    if report is not None:
        _write_report(report, entries, run, pile)
    if json:
        print_json(entries)
    else:
        _tell(entries, summary)
    if not outcome.finished:
        err.print("interrupted: the same command with --resume goes on from here", style="yellow")
        raise typer.Exit(interruption.exit_code)
    if summary.harmful:
        raise typer.Exit(EXIT_HARMFUL)


def _require_free(files: Iterable[Path | None], *, resume: bool, force: bool) -> None:
    """Refuse to overwrite what is there, unless it is told so or belongs to the run that goes on."""
    there = [file for file in files if file is not None and file.exists()]
    if resume and force:
        raise ValueError("--resume continues a run and --force begins anew; give one of them.")
    if there and not resume and not force:
        raise ValueError(
            f"{there[0]} exists already. Continue that run with --resume, overwrite it with --force, or name "
            "another file."
        )
    if force:
        for file in there:
            file.unlink()


def _say_about(source: Checkpoint, *, told: bool) -> None:
    if source.loss_spec and not told:
        err.print(
            f"trained with {source.loss_spec}, says the checkpoint", highlight=False, soft_wrap=True
        )
    tell_caution(source.caution)


def _method(method: str, loss: Loss | None) -> dict[str, Any]:
    """What `fenchel.adapt` takes for a method as it is written here."""
    from fenchel.adapters import METHODS

    name, options = parse_spec(method)
    if "input_range" in METHODS[name].options() and not options.keys() & {"input_range", "mean"}:
        options["input_range"] = (0.0, 1.0)  # as images are read
    if loss is None and METHODS[name].needs_loss():
        raise ValueError(
            f"method {name!r} is derived from the loss the model was trained with, which was not given. "
            "Add --trained-with, for example --trained-with cross-entropy."
        )
    return {"method": name, **options}


def _normalised(network: nn.Module, mean: str | None, std: str | None) -> nn.Module:
    """The model with (x - mean) / std in front, for those that expect normalised images."""
    if mean is None and std is None:
        return network
    if mean is None or std is None:
        raise ValueError("--mean and --std go together; got only one of them.")
    from fenchel.models import Preprocessed, Preprocessing

    numbers = [[float(value) for value in text.split(",")] for text in (mean, std)]
    return Preprocessed(network, Preprocessing(*numbers))


def _labelled(
    adapter: Adapter, images: ImageFiles, classes: str | None, source: Checkpoint, device: str
) -> Labelled:
    """The images with the labels that their folders or files give, told on standard error."""
    from fenchel.predict import first_look, labelled, read_classes
    from fenchel.predict.classes import FOLDER_ORDER

    by_order = classes == FOLDER_ORDER
    names = source.classes or None if classes is None or by_order else read_classes(Path(classes))
    seen = first_look(adapter, images, device)
    if seen.caution:
        err.print(f"warning: {_in_options(seen.caution)}", style="yellow", soft_wrap=True)
    pile = labelled(images, seen.classes, names, folder_order=by_order)
    if pile.how:
        err.print(_in_options(pile.how), highlight=False, soft_wrap=True)
    return pile


def _write_report(path: Path, entries: dict[str, Any], run: Run, pile: Labelled) -> None:
    """The page of the stream, from the files of the run."""
    from fenchel.predict.rows import journal_of, read_rows
    from fenchel.report.stream_page import write_stream_page

    assert run.log is not None
    write_stream_page(
        path,
        summary=entries,
        rows=read_rows(journal_of(run.rows)),
        batches=[json_module.loads(line) for line in run.log.read_text().splitlines()],
        classes=pile.names,
        image_of=pile.images.shown,
    )


def _moving(adapter: Adapter) -> dict[str, Any]:
    """How the adapter adapts: what was told, else the method's own."""
    used = adapter.settings
    return {
        "optimizer": type(used.optimizer).__name__.lower(),
        "learning_rate": getattr(used.optimizer, "learning_rate", None),
        "statistics": used.statistics,
        "parameters": used.parameters,
    }


def _number_or_text(text: str | None) -> Any:
    """`0.1` as a number, `batch` as it is."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _in_options(text: str) -> str:
    """What the library says of its arguments, in the options of this verb."""
    return in_options(text, options_of(adapt_images))


def _tell(entries: dict[str, Any], summary: Summary) -> None:
    out.print(
        f"{entries['images']} images, {entries['updates']} updates in {entries['batches']} batches",
        highlight=False,
    )
    style = "bold red" if summary.harmful else "yellow" if summary.verdict != "healthy" else None
    out.print(summary.sentence, style=style, highlight=False, soft_wrap=True)
    if summary.advice:
        out.print(_in_options(summary.advice), highlight=False, soft_wrap=True)
    for note in summary.notes:
        err.print(f"note: {note}", style="yellow", highlight=False, soft_wrap=True)
    for what in ("predictions", "log", "report", "adapted_model"):
        if entries[what] is not None:
            out.print(f"{what.replace('_', ' ')}: {entries[what]}", highlight=False, soft_wrap=True)
