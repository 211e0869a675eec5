"""What `fenchel adapt` does with one stream: before, during and after its run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fenchel.cli.console import err, out
from fenchel.cli.mistakes import in_options, warnings_told_in
from fenchel.cli.model_options import tell_caution

if TYPE_CHECKING:
    from fenchel.adapters import Adapter
    from fenchel.adapters.group import Group
    from fenchel.models import Checkpoint
    from fenchel.plugins import Plugin
    from fenchel.predict import Choices, ImageFiles, Labelled, Run, Summary
    from fenchel.predict.opening import Adaptation
    from fenchel.predict.shares import Share


@dataclass(frozen=True, kw_only=True)
class StreamCall:
    """One stream of `fenchel adapt`: plain values, which another process can run as well."""

    adaptation: Adaptation
    share: Share
    classes: str | None
    choices: Choices
    out_file: Path
    log: Path | None = None
    report: Path | None = None
    save_adapted: Path | None = None
    resume: bool = False
    options: Mapping[str, str]
    """Those of the verb, in which mistakes are told."""
    plugins: tuple[Plugin, ...] = ()

    def files(self) -> list[Path | None]:
        """Everything that it writes."""
        from fenchel.predict.run import files_of

        return [*files_of(self.out_file, self.log), self.report, self.save_adapted]

    def of(self, share: Share) -> StreamCall:
        """The same call for one share of the images, with files of its own."""

        def own(path: Path | None) -> Path | None:
            return None if path is None else share.file(path)

        return replace(
            self,
            share=share,
            out_file=share.file(self.out_file),
            log=own(self.log),
            report=own(self.report),
            save_adapted=own(self.save_adapted),
        )


@dataclass(frozen=True)
class StreamResult:
    """What one stream came to."""

    entries: dict[str, Any]
    summary: Summary
    finished: bool


def adapt_stream(
    call: StreamCall, stop: Callable[[], bool], group: Group | None = None
) -> StreamResult:
    """Adapt to the images of one stream, write its files, and sum it up; `group` shares its batches."""
    from fenchel.models.opening import read_spec
    from fenchel.predict import Run, summarised
    from fenchel.predict.deploy import how_it_was_made
    from fenchel.predict.deploy import save_adapted as write_adapted
    from fenchel.predict.summary import as_entries

    for plugin in call.plugins:
        plugin.load()
    told, choices, options = call.adaptation, call.choices, call.options
    images = call.share.read(
        size=told.size, mode=told.image_mode, shuffle=choices.shuffle, seed=choices.seed
    )
    opened = told.open(group)
    adapter, source = opened.adapter, opened.source
    say_about(source, told=told.trained_with is not None)
    pile = labelled_images(
        adapter, images, call.classes, source, device=told.device, options=options
    )
    described = told.described(opened)
    with warnings_told_in(options):
        run = Run(adapter, pile, call.out_file, call.log, choices, described, stop=stop)
        if call.resume and (done := run.resume()):
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
        "method": told.method,
        "settings": described | {"batch_size": choices.batch_size, "seed": choices.seed},
        "predictions": str(call.out_file),
        "log": None if call.log is None else str(call.log),
        "report": None if call.report is None else str(call.report),
        "adapted_model": None if call.save_adapted is None else str(call.save_adapted),
    }
    if not run.writes:
        return StreamResult(entries, summary, outcome.finished)
    if call.save_adapted is not None:
        alone = adapter.adapted_model()
        write_adapted(
            call.save_adapted,
            alone.network if opened.is_wrapped else alone,  # type: ignore[arg-type]
            how_it_was_made(adapter, outcome, summary, described),
            metadata=source.metadata if read_spec(told.model).kind == "checkpoint" else None,
        )
    if call.report is not None:
        write_report(call.report, entries, run, pile)
    return StreamResult(entries, summary, outcome.finished)


def require_free(files: Iterable[Path | None], *, resume: bool, force: bool) -> list[Path]:
    """Refuse to overwrite what is there, unless it is told so or belongs to the run that goes on.

    What is to be overwritten is returned.
    """
    there = [file for file in files if file is not None and file.exists()]
    if resume and force:
        raise ValueError("--resume continues a run and --force begins anew; give one of them.")
    if there and not resume and not force:
        raise ValueError(
            f"{there[0]} exists already. Continue that run with --resume, overwrite it with --force, or name "
            "another file."
        )
    return there if force else []


def say_about(source: Checkpoint, *, told: bool) -> None:
    """What the user should know of the model: its loss, unless they told it, and cautions."""
    if source.loss_spec and not told:
        err.print(
            f"trained with {source.loss_spec}, says the checkpoint", highlight=False, soft_wrap=True
        )
    tell_caution(source.caution)


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
