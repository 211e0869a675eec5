"""`fenchel adapt`: adapted predictions of any model on any images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fenchel.cli import completion
from fenchel.cli.adapt_ranks import heard_by_all, joined_ranks, own_device, require_one_stream
from fenchel.cli.adapt_streams import adapt_all, shares_asked_for, tell_all
from fenchel.cli.adaptation_options import (
    ADAPTATION,
    IMAGES,
    MODEL,
    AdaptedModelOption,
    GrayOption,
    LearningRateOption,
    MeanOption,
    MethodOption,
    MovingOption,
    OptimizerOption,
    ProtectOption,
    SettingsOption,
    SizeOption,
    StatisticsOption,
    StdOption,
    learning_rate_in,
)
from fenchel.cli.adapting import (
    StreamCall,
    StreamResult,
    adapt_stream,
    number_or_text,
    require_free,
    tell,
)
from fenchel.cli.console import EXIT_HARMFUL, err, pick_device, print_json
from fenchel.cli.mistakes import options_of
from fenchel.cli.model_options import selected_parameters, where_logits_are

_FILES, _STREAMS = "Files", "Several streams"


def adapt_images(
    model: AdaptedModelOption,
    images: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER|FILE.npy",
            rich_help_panel=IMAGES,
            help="A folder of images (folders by class give labels), an .npy array, or an .npz with labels.",
        ),
    ],
    weights: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=MODEL,
            help="Weights: .safetensors, or .pt/.pth read without running code.",
        ),
    ] = None,
    trained_with: Annotated[
        str | None,
        typer.Option(
            metavar="LOSS",
            rich_help_panel=MODEL,
            autocompletion=completion.losses,
            help="The loss the model was trained with: poly:epsilon=6, cross-entropy, ... "
            "(`fenchel list losses`), or MODULE:FUNCTION for your own.",
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|folders",
            rich_help_panel=MODEL,
            help="The names of the classes in the order of the model's outputs: one per line, or JSON "
            "(a list, or index -> name). `folders`: the class folders of --images in sorted order.",
        ),
    ] = None,
    logits: Annotated[
        str | None,
        typer.Option(
            metavar="KEY|INDEX",
            rich_help_panel=MODEL,
            help="Where the logits are in what the model returns.",
        ),
    ] = None,
    dim: Annotated[
        int | None, typer.Option(rich_help_panel=MODEL, help="The axis of the classes.")
    ] = None,
    mean: MeanOption = None,
    std: StdOption = None,
    method: MethodOption = "protected",
    protect: ProtectOption = None,
    settings: SettingsOption = None,
    optimizer: OptimizerOption = None,
    learning_rate: LearningRateOption = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=ADAPTATION,
            help="The objective sees logits / temperature.",
            show_default="the objective's own",
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option(min=1, rich_help_panel=ADAPTATION, help="Updates per batch.")
    ] = 1,
    statistics: StatisticsOption = None,
    parameters: MovingOption = None,
    source_images: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER|FILE.npy",
            rich_help_panel=ADAPTATION,
            help="Images of the source, without labels, for methods that need them (eata).",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, rich_help_panel=IMAGES)] = 200,
    size: SizeOption = None,
    gray: GrayOption = False,
    shuffle: Annotated[
        bool | None,
        typer.Option(
            rich_help_panel=IMAGES,
            help="Random order (the default for class folders), or the order of the files.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            rich_help_panel=IMAGES,
            help="Stop at the first image that cannot be read, rather than say so in its row.",
        ),
    ] = False,
    workers: Annotated[
        int,
        typer.Option(
            min=1, rich_help_panel=IMAGES, help="Threads that read images ahead of the network."
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
    shards: Annotated[
        int | None,
        typer.Option(
            min=1,
            rich_help_panel=_STREAMS,
            help="Cut the images into so many streams, each from the source on and with files of its own: "
            "predictions-0-of-4.csv, ...",
        ),
    ] = None,
    by_folder: Annotated[
        bool,
        typer.Option(
            "--by-folder",
            rich_help_panel=_STREAMS,
            help="One stream per folder within --images: predictions-north.csv, ...",
        ),
    ] = False,
    executor: Annotated[
        str,
        typer.Option(
            metavar="serial|ray",
            rich_help_panel=_STREAMS,
            help="Where streams run: one after the other here, or in one Ray actor each. The files are the "
            "same.",
        ),
    ] = "serial",
    at_once: Annotated[
        int | None,
        typer.Option(
            min=1,
            rich_help_panel=_STREAMS,
            help="Actors that run side by side.",
            show_default="1, or the cluster's processors",
        ),
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(rich_help_panel=_STREAMS, help="A Ray cluster, such as auto or HOST:PORT."),
    ] = None,
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

        fenchel adapt --model runs/ce --images cameras/ --by-folder --executor ray --at-once 2

        torchrun --nproc-per-node 2 -m fenchel adapt --model runs/ce --images photos/
    """
    from fenchel.plugins import loaded_plugins
    from fenchel.predict import Choices, interruptible
    from fenchel.predict.opening import Adaptation
    from fenchel.predict.shares import Share

    if report is not None and log is None:  # the page is made from it
        log = out_file.with_name(out_file.name + ".batches.jsonl")
    place = own_device(pick_device(device))
    call = StreamCall(
        adaptation=Adaptation(
            model=model,
            weights=weights,
            trained_with=trained_with,
            logits=where_logits_are(logits),
            dim=dim,
            mean=mean,
            std=std,
            method=method,
            protect=protect,
            settings=settings,
            optimizer=optimizer,
            learning_rate=learning_rate_in(learning_rate),
            temperature=temperature,
            steps=steps,
            statistics=number_or_text(statistics),
            parameters=None if parameters is None else selected_parameters(parameters),
            source_images=source_images,
            size=size,
            gray=gray,
            seed=seed,
            device=place,
        ),
        share=Share("all", images),
        classes=classes,
        choices=Choices(
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
        ),
        out_file=out_file,
        log=log,
        report=report,
        save_adapted=save_adapted,
        resume=resume,
        options=options_of(adapt_images),
        plugins=loaded_plugins(),
    )
    shares = shares_asked_for(images, shards, by_folder, executor, at_once, ray_address)
    require_one_stream(several=bool(shares))
    calls = [call.of(share) for share in shares] or [call]
    written = [file for each in calls for file in each.files()]
    there = require_free(written, resume=resume, force=force)
    with interruptible() as interruption, joined_ranks(place) as group:
        speaks = group is None or group.rank == 0
        for file in there if speaks else ():  # all ranks have looked: they met as they joined
            file.unlink()
        stop = heard_by_all(group, interruption)
        results = (
            adapt_all(calls, executor, at_once, ray_address, stop=stop)
            if shares
            else [adapt_stream(call, stop, group)]
        )
    if speaks:
        _tell_results(results, several=bool(shares), as_json=json)
    if len(results) < len(calls) or not all(result.finished for result in results):
        if speaks:
            err.print(
                "interrupted: the same command with --resume goes on from here", style="yellow"
            )
        raise typer.Exit(interruption.exit_code)
    if any(result.summary.harmful for result in results):
        raise typer.Exit(EXIT_HARMFUL)


def _tell_results(results: Sequence[StreamResult], *, several: bool, as_json: bool) -> None:
    """What the streams came to, on standard output."""
    if as_json:
        entries = [result.entries for result in results]
        print_json({"streams": entries} if several else entries[0])
    elif several:
        tell_all(results)
    else:
        tell(results[0].entries, results[0].summary)
