"""`fenchel adapt`: adapted predictions of any model on any images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fenchel.cli import completion
from fenchel.cli.console import err, out, pick_device, print_json
from fenchel.cli.imports import load_object
from fenchel.names import parse_spec

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fenchel.predict import Predictions

_MOST_SOURCE_IMAGES = 2000
"""As many as EATA's authors take."""


def adapt_images(
    model: Annotated[
        str,
        typer.Option(
            metavar="MODULE:FACTORY",
            autocompletion=completion.models_and_zoo,
            help="Your function that builds the model, as MODULE:NAME or FILE.py:NAME; or the name of a "
            "model of this library; or a checkpoint: a file of `fenchel train`, or zoo:NAME.",
        ),
    ],
    images: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER|FILE.npy",
            help="A folder of images (folders by class give labels), an .npy array, or an .npz with labels.",
        ),
    ],
    weights: Annotated[
        Path | None,
        typer.Option(help="Weights: .safetensors, or .pt/.pth read without running code."),
    ] = None,
    trained_with: Annotated[
        str | None,
        typer.Option(
            metavar="LOSS",
            autocompletion=completion.losses,
            help="The loss the model was trained with: poly:epsilon=6, cross-entropy, ... "
            "(`fenchel list losses`), or MODULE:FUNCTION for your own.",
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            autocompletion=completion.methods,
            help="See `fenchel list methods`; options follow: hard:threshold=0.9, learned:path=FILE.",
        ),
    ] = "conjugate",
    out_file: Annotated[Path, typer.Option("--out", help="Where the predictions go.")] = Path(
        "predictions.csv"
    ),
    save_adapted: Annotated[
        Path | None, typer.Option(help="Write the adapted weights to this .safetensors file.")
    ] = None,
    settings: Annotated[
        str | None,
        typer.Option(help="What the method's authors published for a data set, such as cifar10."),
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="sgd or adam.", show_default="the method's own, or sgd")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(min=0.0, show_default="the method's own, or 0.001")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            help="The objective sees logits / temperature.", show_default="the objective's own"
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Updates per batch.")] = 1,
    statistics: Annotated[
        str | None,
        typer.Option(
            help="batch, source, the weight in (0, 1) of each batch in a running mix, mix:0.1 (source and "
            "batch) or note:4 (corrected per sample).",
            show_default="the method's own, or batch",
        ),
    ] = None,
    source_images: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER|FILE.npy",
            help="Images that the model was trained on, without labels, for methods that need some (eata).",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1)] = 200,
    size: Annotated[
        int | None, typer.Option(help="Resize the short side and cut a centre square of this size.")
    ] = None,
    gray: Annotated[bool, typer.Option("--gray", help="Read images with one channel.")] = False,
    mean: Annotated[
        str | None, typer.Option(help="For models that expect normalised images: 0.49,0.48,0.45")
    ] = None,
    std: Annotated[str | None, typer.Option(help="With --mean.")] = None,
    shuffle: Annotated[
        bool | None,
        typer.Option(
            help="Random order (the default for class folders), or the order of the files."
        ),
    ] = None,
    seed: Annotated[int, typer.Option()] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Adapt a model to images while predicting them; the predictions go to a CSV file.

    [bold]Examples[/bold]

        fenchel adapt --model my_net.py:build --weights net.pt --trained-with poly:epsilon=6 --images photos/

        fenchel adapt --model runs/digits/checkpoint.safetensors --images digits.npy --out adapted.csv
    """
    from fenchel.adapters import METHODS
    from fenchel.api import adapt
    from fenchel.files import safetensors_bytes, write_atomically
    from fenchel.predict import predict, read_images

    place = pick_device(device)
    network, loss = _model(model, weights, trained_with)
    network = _normalised(network, mean, std).to(place)
    found_images = read_images(images, size=size, mode="L" if gray else "RGB")
    name, options = parse_spec(method)
    if "input_range" in METHODS[name].options() and not options.keys() & {"input_range", "mean"}:
        options["input_range"] = (0.0, 1.0)  # as images are read
    if loss is None and METHODS[name].needs_loss():
        raise ValueError(
            f"method {name!r} is derived from the loss the model was trained with, which was not given. "
            "Add --trained-with, for example --trained-with cross-entropy."
        )
    adapter = adapt(
        network,
        trained_with=loss,
        method=name,
        settings=settings,
        optimizer=optimizer,
        learning_rate=learning_rate,
        temperature=temperature,
        steps=steps,
        statistics=_statistics(statistics),
        seed=seed,
        source_images=_source_images(source_images, size, gray, place),
        **options,
    )
    found = predict(
        adapter, found_images, batch_size=batch_size, shuffle=shuffle, seed=seed, device=place
    )
    found.to_csv(out_file)
    if save_adapted is not None:
        tensors = adapter.adapted_model().state_dict()
        note = {"adapted_with": f"{method}, {len(found_images)} images"}
        write_atomically(save_adapted, safetensors_bytes(tensors, note))
    _tell(found, method, out_file, save_adapted, json)


def _model(model: str, weights: Path | None, trained_with: str | None) -> tuple[nn.Module, Any]:
    """The network and its loss: a checkpoint knows both, anything else is told."""
    from fenchel.losses import LOSSES, derive, parse
    from fenchel.models import MODELS, build, load_checkpoint, load_weights
    from fenchel.models.places import has_scheme

    loss: Any = None
    if trained_with is not None:
        name, _, rest = trained_with.partition(":")
        own = name not in LOSSES and rest != "" and "=" not in rest
        loss = derive(load_object(trained_with)) if own else parse(trained_with)
    if has_scheme(model) or (Path(model).exists() and ":" not in model):
        checkpoint = load_checkpoint(model)
        if loss is None:
            loss = parse(checkpoint.loss_spec)
            err.print(f"trained with {loss.spec}, says the checkpoint", highlight=False)
        if weights is not None:
            load_weights(checkpoint.model, weights)
        return checkpoint.model.eval(), loss
    network = build(model) if ":" not in model and model in MODELS else load_object(model)()
    if weights is None:
        err.print("no --weights: the model is adapted as its factory returned it", style="yellow")
    else:
        load_weights(network, weights)
    return network.eval(), loss


def _normalised(network: nn.Module, mean: str | None, std: str | None) -> nn.Module:
    if mean is None and std is None:
        return network
    if mean is None or std is None:
        raise ValueError("--mean and --std go together; got only one of them.")
    from fenchel.predict import with_preprocessing

    numbers = [[float(value) for value in text.split(",")] for text in (mean, std)]
    return with_preprocessing(network, *numbers)


def _source_images(path: Path | None, size: int | None, gray: bool, device: str) -> Tensor | None:
    """Images at a path, read as those that are predicted; of many a random part: classes may be sorted."""
    if path is None:
        return None
    from fenchel.data.orders import shuffle
    from fenchel.predict import read_images

    images = read_images(path, size=size, mode="L" if gray else "RGB")
    return images.batch(shuffle(0, len(images))[:_MOST_SOURCE_IMAGES]).to(device)


def _statistics(text: str | None) -> Any:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _tell(found: Predictions, method: str, csv: Path, adapted: Path | None, as_json: bool) -> None:
    summary: dict[str, Any] = {
        "images": len(found.names),
        "method": method,
        "changed_percent": round(found.changed(), 4),
        "source_error_percent": found.source_error(),
        "error_percent": found.error(),
        "batches": found.health.batches,
        "updates": found.health.updates,
        "skipped_updates": found.health.skips,
        "warnings": found.warnings(),
        "predictions": str(csv),
        "adapted_weights": None if adapted is None else str(adapted),
    }
    if as_json:
        print_json(summary)
        return
    out.print(
        f"{summary['images']} images, {summary['updates']} updates in {summary['batches']} batches; "
        f"{found.changed():.1f} % of the predictions changed",
        highlight=False,
    )
    if (error := found.error()) is not None:
        out.print(
            f"error: source {found.source_error():.2f} %, {method} {error:.2f} %", highlight=False
        )
    for warning in found.warnings():
        err.print(f"warning: {warning}", style="yellow", highlight=False)
    out.print(f"predictions: {csv}", highlight=False)
    if adapted is not None:
        out.print(f"adapted weights: {adapted}", highlight=False)
