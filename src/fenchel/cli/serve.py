"""`fenchel serve`: many streams of images on one network, over HTTP."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from fenchel.cli.adaptation_options import (
    ADAPTATION,
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
from fenchel.cli.adapting import number_or_text
from fenchel.cli.console import err, out, output_for_answers_alone, pick_device, print_json
from fenchel.cli.model_options import (
    LogitsOption,
    TrainedWithOption,
    WeightsOption,
    from_here,
    own_code_from_here,
    selected_parameters,
    where_logits_are,
)

_STREAMS, _NETWORK = "Streams", "Network"
_ASKING_SECONDS = 0.2


def serve(
    model: AdaptedModelOption,
    weights: WeightsOption = None,
    trained_with: TrainedWithOption = None,
    classes: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=MODEL,
            help="The names of the classes: one per line, or JSON.",
            show_default="the checkpoint's",
        ),
    ] = None,
    logits: LogitsOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    size: SizeOption = None,
    gray: GrayOption = False,
    method: MethodOption = "protected",
    protect: ProtectOption = None,
    settings: SettingsOption = None,
    optimizer: OptimizerOption = None,
    learning_rate: LearningRateOption = None,
    statistics: StatisticsOption = None,
    parameters: MovingOption = None,
    source_predictions: Annotated[
        str,
        typer.Option(
            metavar="auto|always|never",
            rich_help_panel=ADAPTATION,
            help="When answers tell the source model's word. auto: where the protection asks for it anyway, "
            "at the beginning, now and then, and where something looks wrong.",
        ),
    ] = "auto",
    store: Annotated[
        Path,
        typer.Option(rich_help_panel=_STREAMS, help="The folder in which the streams are kept."),
    ] = Path("streams"),
    replicas: Annotated[
        int,
        typer.Option(
            min=1,
            rich_help_panel=_STREAMS,
            help="Processes that share the streams; each stream stays with one of them.",
        ),
    ] = 1,
    resident: Annotated[
        int,
        typer.Option(
            min=1, rich_help_panel=_STREAMS, help="States that a replica keeps in memory."
        ),
    ] = 100,
    batch_size: Annotated[
        int,
        typer.Option(
            min=1,
            rich_help_panel=_STREAMS,
            help="Images of one stream that are learnt together at most, from requests that wait.",
        ),
    ] = 64,
    wait: Annotated[
        float,
        typer.Option(
            min=0.0,
            rich_help_panel=_STREAMS,
            help="Seconds that a request waits for others of its stream.",
        ),
    ] = 0.0,
    save_every: Annotated[
        int,
        typer.Option(
            min=1,
            rich_help_panel=_STREAMS,
            help="Save a stream after every so many batches. With more than 1, the last ones are lost when "
            "a replica dies.",
        ),
    ] = 1,
    torch_threads: Annotated[
        int, typer.Option(min=1, rich_help_panel=_STREAMS, help="Threads of torch per replica.")
    ] = 1,
    host: Annotated[
        str,
        typer.Option(
            rich_help_panel=_NETWORK,
            help="The address to listen at; 0.0.0.0 lets other machines in.",
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, rich_help_panel=_NETWORK)] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_NETWORK,
            help="A file with the token that clients must send.",
            show_default="the variable FENCHEL_TOKEN, or none",
        ),
    ] = None,
    most_bytes: Annotated[
        int, typer.Option(min=1, rich_help_panel=_NETWORK, help="Bytes per request.")
    ] = 16 * 2**20,
    most_images: Annotated[
        int, typer.Option(min=1, rich_help_panel=_NETWORK, help="Images per request.")
    ] = 256,
    most_pixels: Annotated[
        int,
        typer.Option(
            min=1,
            rich_help_panel=_NETWORK,
            help="Pixels of all images of a request. The network needs memory for them, unless --size makes "
            "them smaller.",
        ),
    ] = 16_000_000,
    most_waiting: Annotated[
        int,
        typer.Option(min=1, rich_help_panel=_NETWORK, help="Requests of one stream that may wait."),
    ] = 8,
    most_streams: Annotated[
        int, typer.Option(min=1, rich_help_panel=_NETWORK, help="Streams that a replica may have.")
    ] = 100_000,
    ray_address: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_NETWORK,
            help="A Ray cluster, such as auto or HOST:PORT.",
            show_default="Ray is started here",
        ),
    ] = None,
    seed: Annotated[int, typer.Option()] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    json: Annotated[
        bool, typer.Option("--json", help="Print where the service is as JSON, when it answers.")
    ] = False,
) -> None:
    """Serve many streams of images on one network, each adapted by itself; on Ray Serve.

    A page with the health of the streams is at the address itself, and what can be asked at /docs.
    Ctrl-C ends the service; the same command goes on with the same streams. See docs/scale.md.

    [bold]Examples[/bold]

        fenchel serve --model zoo:cifar10-resnet26-poly --store streams --replicas 2

        curl -H 'Content-Type: image/png' --data-binary @photo.png localhost:8000/v1/streams/north/predict
    """
    from fenchel.plugins import loaded_plugins
    from fenchel.predict import interruptible, read_classes
    from fenchel.predict.opening import Adaptation
    from fenchel.serve.deployment import require_serve, start
    from fenchel.serve.limits import Limits
    from fenchel.serve.service import Service, token_from

    require_serve()
    service = Service(
        adaptation=Adaptation(
            model=from_here(model),
            weights=None if weights is None else weights.resolve(),
            trained_with=None if trained_with is None else own_code_from_here(trained_with),
            logits=where_logits_are(logits),
            mean=mean,
            std=std,
            method=method,
            protect=protect,
            settings=settings,
            optimizer=optimizer,
            learning_rate=learning_rate_in(learning_rate),
            statistics=number_or_text(statistics),
            parameters=None if parameters is None else selected_parameters(parameters),
            size=size,
            gray=gray,
            seed=seed,
            device=pick_device(device),
        ),
        classes=None if classes is None else read_classes(classes),
        store=store.resolve(),
        replicas=replicas,
        resident=resident,
        batch_size=batch_size,
        wait=wait,
        save_every=save_every,
        torch_threads=torch_threads,
        source_predictions=source_predictions,  # type: ignore[arg-type]
        limits=Limits(
            request_bytes=most_bytes,
            images=most_images,
            pixels=most_pixels,
            waiting=most_waiting,
            streams=most_streams,
        ),
        host=host,
        port=port,
        token=token_from(token_file),
        plugins=loaded_plugins(),
    )
    if not service.is_local and service.token is None:
        err.print(
            f"warning: whoever reaches {host} may use this service. Set a token: --token-file FILE.",
            style="yellow",
            soft_wrap=True,
        )
    service.adaptation.open()  # a mistake in the options is told here, not in a log of Ray
    err.print("starting Ray Serve ...", highlight=False)
    with interruptible() as interruption:
        with output_for_answers_alone():
            running = start(service, address=ray_address)
        try:
            if json:
                print_json({"url": running.url, "store": str(service.store), "replicas": replicas})
            else:
                out.print(f"serving at {running.url}", highlight=False, soft_wrap=True)
            with output_for_answers_alone():
                while not interruption:
                    time.sleep(_ASKING_SECONDS)
        finally:
            err.print("stopping ...", highlight=False)
            with output_for_answers_alone():
                running.stop()
