"""What `fenchel adapt` does before and after a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fenchel.cli.console import err, out
from fenchel.cli.mistakes import in_options
from fenchel.cli.model_options import tell_caution
from fenchel.names import parse_spec

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fenchel.adapters import Adapter
    from fenchel.adapters.core import Protect
    from fenchel.losses import Loss
    from fenchel.models import Checkpoint
    from fenchel.predict import ImageFiles, Labelled, Run, Summary

MOST_SOURCE_IMAGES = 2000
"""As many as EATA's authors take."""


def require_free(files: Iterable[Path | None], *, resume: bool, force: bool) -> None:
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


def say_about(source: Checkpoint, *, told: bool) -> None:
    """What the user should know of the model: its loss, unless they told it, and cautions."""
    if source.loss_spec and not told:
        err.print(
            f"trained with {source.loss_spec}, says the checkpoint", highlight=False, soft_wrap=True
        )
    tell_caution(source.caution)


def method_arguments(method: str, loss: Loss | None) -> dict[str, Any]:
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


def protection(told: str | None, method: str) -> Protect:
    """What `fenchel.adapt` takes for `--protect`; methods that are named are watched at least."""
    if told is None:
        return "auto" if parse_spec(method)[0] == "protected" else "watch"
    if told not in ("auto", "watch", "off"):
        raise ValueError(f"--protect must be auto, watch or off; got {told!r}.")
    return False if told == "off" else told  # type: ignore[return-value]


def normalised(network: nn.Module, mean: str | None, std: str | None) -> nn.Module:
    """The model with (x - mean) / std in front, for those that expect normalised images."""
    if mean is None and std is None:
        return network
    if mean is None or std is None:
        raise ValueError("--mean and --std go together; got only one of them.")
    from fenchel.models import Preprocessed, Preprocessing

    numbers = [[float(value) for value in text.split(",")] for text in (mean, std)]
    return Preprocessed(network, Preprocessing(*numbers))


def labelled_images(
    adapter: Adapter,
    images: ImageFiles,
    classes: str | None,
    source: Checkpoint,
    *,
    device: str,
    options: Mapping[str, str],
) -> Labelled:
    """The images with the labels that their folders or files give, told on standard error."""
    from fenchel.predict import first_look, labelled, read_classes
    from fenchel.predict.classes import FOLDER_ORDER

    by_order = classes == FOLDER_ORDER
    names = source.classes or None if classes is None or by_order else read_classes(Path(classes))
    seen = first_look(adapter, images, device)
    if seen.caution:
        err.print(f"warning: {in_options(seen.caution, options)}", style="yellow", soft_wrap=True)
    pile = labelled(images, seen.classes, names, folder_order=by_order)
    if pile.how:
        err.print(in_options(pile.how, options), highlight=False, soft_wrap=True)
    return pile


def write_report(path: Path, entries: dict[str, Any], run: Run, pile: Labelled) -> None:
    """The page of the stream, from the files of the run."""
    from fenchel.predict.rows import journal_of, read_rows
    from fenchel.report.stream_page import write_stream_page

    assert run.log is not None
    write_stream_page(
        path,
        summary=entries,
        rows=read_rows(journal_of(run.rows)),
        batches=[json.loads(line) for line in run.log.read_text().splitlines()],
        classes=pile.names,
        image_of=pile.images.shown,
    )


def source_pixels(path: Path | None, *, size: int | None, mode: str, device: str) -> Tensor | None:
    """Images at a path, read as those that are predicted; of many a random part: classes may be sorted."""
    if path is None:
        return None
    from fenchel.predict import read_images
    from fenchel.predict.reading import Batch, read_ahead

    images = read_images(path, size=size, mode=mode)
    some = images.order(shuffle=True)[:MOST_SOURCE_IMAGES]
    return Batch(tuple(read_ahead(images, some))).inputs().to(device)


def moving(adapter: Adapter) -> dict[str, Any]:
    """How the adapter adapts: what was told, else the method's own."""
    used = adapter.settings
    return {
        "optimizer": type(used.optimizer).__name__.lower(),
        "learning_rate": getattr(used.optimizer, "learning_rate", None),
        "statistics": used.statistics,
        "parameters": used.parameters,
    }


def number_or_text(text: str | None) -> Any:
    """`0.1` as a number, `batch` as it is."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def tell(entries: Mapping[str, Any], summary: Summary) -> None:
    """The summary of a run on the two consoles."""
    out.print(
        f"{entries['images']} images, {entries['updates']} updates in {entries['batches']} batches",
        highlight=False,
    )
    style = "bold red" if summary.harmful else "yellow" if summary.verdict != "healthy" else None
    out.print(summary.sentence, style=style, highlight=False, soft_wrap=True)
    if entries["advice"]:
        out.print(entries["advice"], highlight=False, soft_wrap=True)
    for note in summary.notes:
        err.print(f"note: {note}", style="yellow", highlight=False, soft_wrap=True)
    for what in ("predictions", "log", "report", "adapted_model"):
        if entries[what] is not None:
            out.print(f"{what.replace('_', ' ')}: {entries[what]}", highlight=False, soft_wrap=True)
