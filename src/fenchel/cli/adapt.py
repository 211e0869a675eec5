"""`fenchel adapt`: adapted predictions of any model on any images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fenchel.cli import completion
from fenchel.cli.adapting import (
    labelled_images,
    method_arguments,
    moving,
    normalised,
    number_or_text,
    protection,
    require_free,
    say_about,
    source_pixels,
    tell,
    write_report,
)
from fenchel.cli.console import EXIT_HARMFUL, err, pick_device, print_json
from fenchel.cli.mistakes import in_options, options_of, warnings_told_in
from fenchel.cli.model_options import MODELS_HELP, selected_parameters, where_logits_are

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
    ] = "protected",
    protect: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_ADAPTATION,
            help="auto: notice harm and act; watch: notice and say it; off: the bare step.",
            show_default="auto, or watch for a method that you name",
        ),
    ] = None,
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
            help="auto, batch, source, the weight in (0, 1) of each batch in a running mix, mix:0.1 (source "
            "and batch) or note:4 (corrected per sample).",
            show_default="auto, or what suits the method",
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
    source_images: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER|FILE.npy",
            rich_help_panel=_ADAPTATION,
            help="Images of the source, without labels, for methods that need them (eata).",
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
            help="When the source model predicts too (up to two more forward passes). auto: always where "
            "labels are known, else now and then, and where something looks wrong.",
        ),
    ] = "auto",
    top_k: Annotated[
        int,
        typer.Option(
            min=0, rich_help_panel=_FILES, help="Columns for so many of the most probable classes."
        ),
    ] = 0,
    probabilities: Annotated[
        bool,
        typer.Option(
            "--probabilities",
            rich_help_panel=_FILES,
            help="Columns p0, p1, ... for the probability of every class.",
        ),
    ] = False,
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
    require_free(written, resume=resume, force=force)
    mode = "L" if gray else "RGB"
    found = read_images(images, size=size, mode=mode)
    source = open_model(model, weights=weights, trained_with=trained_with)
    loss = open_loss(source.loss_spec) if source.loss_spec else None
    say_about(source, told=trained_with is not None)
    network = normalised(source.model, mean, std)
    adapter = adapt(
        network.to(place),
        trained_with=loss,
        **method_arguments(method, loss),
        protect=protection(protect, method),
        settings=settings,
        optimizer=optimizer,
        learning_rate=learning_rate,
        temperature=temperature,
        steps=steps,
        statistics=number_or_text(statistics),
        parameters=None if parameters is None else selected_parameters(parameters),
        logits=where_logits_are(logits),
        dim=dim,
        source_images=source_pixels(source_images, size=size, mode=mode, device=place),
        seed=seed,
    )
    options = options_of(adapt_images)
    pile = labelled_images(adapter, found, classes, source, device=place, options=options)
    described = {
        "model": model,
        "model_digest": source.digest,
        "trained_with": source.loss_spec or None,
        "method": method,
        "protect": adapter.settings.protect,
        "settings": settings,
        **moving(adapter),
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
        probabilities=probabilities,
        workers=workers,
        strict=strict,
        save_every=save_every,
    )
    with interruptible() as interruption, warnings_told_in(options):
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
        "advice": in_options(summary.advice, options),
        "labels": in_options(pile.how, options) or None,
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
        write_report(report, entries, run, pile)
    if json:
        print_json(entries)
    else:
        tell(entries, summary)
    if not outcome.finished:
        err.print("interrupted: the same command with --resume goes on from here", style="yellow")
        raise typer.Exit(interruption.exit_code)
    if summary.harmful:
        raise typer.Exit(EXIT_HARMFUL)
