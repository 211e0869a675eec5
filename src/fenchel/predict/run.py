"""The run itself: read, adapt, predict, compare, write; a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from torch import Tensor

from fenchel.adapters import Adapter, Health
from fenchel.adapters.watch import distance
from fenchel.models.feeding import blamed, suspicious_inputs
from fenchel.predict.classes import Labelled
from fenchel.predict.comparing import SourcePredictions, predicted, scores_in, verdict_on
from fenchel.predict.evidence import Predictions, batch_entry, count, event_of, rows_of
from fenchel.predict.images import ImageFiles
from fenchel.predict.reading import Batch, first_usable, in_batches, of_shape, read_ahead
from fenchel.predict.rows import CsvRows, GrowingFile, columns, journal_of, json_line, row_file
from fenchel.predict.saved import Standing, state_file
from fenchel.predict.sharing import SharedReading
from fenchel.predict.tally import Tally
from fenchel.progress import progress


@dataclass(frozen=True, kw_only=True)
class Choices:
    """How images are predicted.

    Attributes:
        batch_size: images per batch. A small rest is shared by the last two batches.
        shuffle: random order; by default for images sorted by class, whose batches would be biased.
        source_predictions: when the source model predicts too, which costs up to two forward passes:
            `always`, `never`, or `auto`: always where labels are known, else on some batches and where
            something looks wrong.
        top_k: record so many of the most probable classes of each image.
        probabilities: record the probability of every class of each image.
        workers: threads that read images ahead of the network.
        strict: stop at the first image that cannot be used, rather than say so in its row.
        save_every: save the state after every so many batches.
    """

    batch_size: int = 200
    shuffle: bool | None = None
    seed: int = 0
    device: str = "cpu"
    source_predictions: SourcePredictions = "auto"
    top_k: int = 0
    probabilities: bool = False
    workers: int = 2
    strict: bool = False
    save_every: int = 10

    def __post_init__(self) -> None:
        for name in ("batch_size", "workers", "save_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if self.source_predictions not in ("auto", "always", "never"):
            raise ValueError(
                f"source_predictions must be auto, always or never; got {self.source_predictions!r}."
            )

    def deciding(self) -> dict[str, Any]:
        """Those that decide what a run predicts and writes."""
        names = ("batch_size", "shuffle", "seed", "source_predictions", "top_k", "probabilities")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    tally: Tally
    health: Health
    finished: bool
    """False if it was interrupted."""


@dataclass
class Run:
    """One run over a pile of images. `go` does it; what it writes grows batch by batch.

    With an adapter that shares its batches (`group=`), every rank makes the same run.

    Attributes:
        rows: the file of predictions, `.csv` or `.parquet`; `log` one line of JSON per batch.
        described: what decides the predictions beside the choices and the images; see `Standing`.
        stop: asked between batches; the run ends, and is saved, when it is true.
    """

    adapter: Adapter
    pile: Labelled
    rows: Path
    log: Path | None = None
    choices: Choices = field(default_factory=Choices)
    described: Mapping[str, Any] = field(default_factory=dict)
    stop: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        images, choices = self.pile.images, self.choices
        self._order = images.order(shuffle=choices.shuffle, seed=choices.seed)
        self._whole = {**self.described, **choices.deciding(), "images": images.digest}
        self._standing = Standing(self._whole)
        self._tally = Tally()
        every = self.pile.classes if choices.probabilities else 0
        self._columns = columns(choices.top_k, every)
        self._group = self.adapter.settings.group
        self._rows_file: CsvRows | None = None
        self._log_file: GrowingFile | None = None

    @property
    def writes(self) -> bool:
        """Whether this process writes the files: of several that share the stream, the first does."""
        return self._group is None or self._group.rank == 0

    def resume(self) -> int:
        """Take up a saved run, if there is one; the number of images that it has done."""
        file = state_file(self.rows)
        if not file.exists():
            return 0
        standing = Standing.load(file)
        standing.require_same(self._whole)
        self.adapter.load_state_dict(standing.tensors)
        self._tally = Tally(**standing.tally)
        self._standing = standing
        return standing.images

    def go(self) -> Outcome:
        """Predict all images that are left, or as many as there is time for."""
        total, done = len(self.pile.images), self._standing.images
        if self._standing.finished:
            return self._outcome(finished=True)
        self._open()
        try:
            with progress("adapting", total=total - done if self.writes else 0) as bar:
                for batch, is_last in _with_last(self._batches(done)):
                    self._meet(batch, is_last)
                    self._standing = self._stand()
                    bar.advance(len(batch.pictures))
                    bar.note(verdict_on(self.adapter)[0])
                    if self._tally.batches % self.choices.save_every == 0:
                        self._save()
                    if self.stop():
                        break
        finally:  # an error ends the run, and keeps all batches before it
            self._save()
            self._close()
        return self._outcome(finished=self._tally.images == total)

    # --- one batch -------------------------------------------------------------------------------

    def _batches(self, done: int) -> Iterator[Batch]:
        images, size = self.pile.images, self.choices.batch_size
        self._first = first = first_usable(images, self._order)
        assert first.values is not None
        rest, workers = self._order[done:].tolist(), self.choices.workers
        if self._group is not None:
            return SharedReading(self._group, images, rest, first, size, workers).batches()
        pictures = read_ahead(images, rest, workers=workers, ahead=size)
        return in_batches(of_shape(first.values.shape, pictures), size)

    def _meet(self, batch: Batch, is_last: bool) -> None:
        """Adapt to a batch, predict it, compare, and write."""
        self._require_usable(batch)
        number, before = self._tally.batches, self.adapter.health()
        found = self._predicted(batch, is_last)
        verdict, reason = verdict_on(self.adapter)
        self._tally.judge(verdict, number)
        event = event_of(before, self.adapter.health())
        rows = rows_of(batch, found, self.pile, number, event, self._columns)
        count(self._tally, rows)
        if self._rows_file is not None:
            self._rows_file.add(rows)
        if self._log_file is not None:
            entry = batch_entry(rows, found, number, event, verdict, reason)
            entry["parameter_distance"] = distance(
                self.adapter.state.parameters, self.adapter.step.source
            )
            entry["time"] = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            self._log_file.append(json_line(entry))

    def _predicted(self, batch: Batch, is_last: bool) -> Predictions:
        """The adapted prediction of the usable images, and the others beside it where they are wanted."""
        if not batch.usable:
            return Predictions()
        inputs = self._inputs(batch).to(self.choices.device)
        with _explained(self.adapter, inputs):
            return predicted(
                self.adapter,
                self.adapter.settings,
                inputs,
                self.choices.source_predictions,
                needed=self._needs_source(is_last),
            )

    def _inputs(self, batch: Batch) -> Tensor:
        """What the network is given here; of a batch that is shared, perhaps no image at all."""
        has_any = any(picture.values is not None for picture in batch.usable)
        return batch.inputs() if has_any else Batch((self._first,)).inputs()[:0]

    def _needs_source(self, is_last: bool) -> bool:
        """Whether the source is asked even where the protection did not ask it."""
        labelled = self.pile.images.labels is not None
        return labelled or (is_last and self._tally.compared == 0)

    def _require_usable(self, batch: Batch) -> None:
        for picture in batch.pictures if self.choices.strict else ():
            if picture.problem:
                name = self.pile.images.names[picture.index]
                raise ValueError(
                    f"{name} cannot be used: {picture.reason}. Without strict=True its row would say so, and "
                    "the run would go on."
                )

    # --- files -----------------------------------------------------------------------------------

    def _open(self) -> None:
        if not self.writes:
            return
        sizes = self._standing.sizes
        self._rows_file = row_file(self.rows, self._columns, keep=sizes.get("rows", 0))
        self._log_file = (
            None if self.log is None else GrowingFile(self.log, keep=sizes.get("log", 0))
        )

    def _files(self) -> Iterable[tuple[str, GrowingFile]]:
        if self._rows_file is not None:
            yield "rows", self._rows_file
        if self._log_file is not None:
            yield "log", self._log_file

    def _stand(self) -> Standing:
        """Where the run stands, a batch being complete: its rows are written, and it is counted."""
        return Standing(
            described=self._whole,
            images=self._tally.images,
            sizes={name: file.size for name, file in self._files()},
            tally=self._tally.to_plain(),
            finished=self._tally.images == len(self.pile.images),
            tensors=self.adapter.state_dict(),
        )

    def _save(self) -> None:
        """Save the run as it stood after the last complete batch."""
        if self._rows_file is None:
            return
        for _, file in self._files():
            file.sync()
        self._rows_file.publish()
        self._standing.save(state_file(self.rows))

    def _close(self) -> None:
        for _, file in self._files():
            file.close()

    def _outcome(self, *, finished: bool) -> Outcome:
        return Outcome(self._tally, self.adapter.health(), finished)


def files_of(rows: Path, log: Path | None) -> list[Path]:
    """Everything that a run writes."""
    every = [rows, journal_of(rows), state_file(rows), *([log] if log is not None else [])]
    return list(dict.fromkeys(every))


@dataclass(frozen=True)
class FirstLook:
    """What one image tells before a run begins: the number of classes, and what looks wrong with it."""

    classes: int
    caution: str | None


def first_look(adapter: Adapter, images: ImageFiles, device: str = "cpu") -> FirstLook:
    """Let the source predict the first image that can be used."""
    picture = first_usable(images, range(len(images)))
    inputs = Batch((picture,)).inputs().to(device)
    with _explained(adapter, inputs):
        scores = scores_in(adapter.source_prediction(inputs), adapter.settings.logits)
    return FirstLook(scores.shape[-1], suspicious_inputs(inputs))


@contextmanager
def _explained(adapter: Adapter, inputs: Tensor) -> Iterator[None]:
    """Where the user's network fails on what it is fed, one line says so instead of a traceback."""
    try:
        yield
    except Exception as error:
        told = blamed(error, inputs, adapter.model)
        if told is error:
            raise
        raise told from error


def _with_last(batches: Iterator[Batch]) -> Iterator[tuple[Batch, bool]]:
    """Each batch, and whether it is the last one."""
    held = next(batches, None)
    while held is not None:
        following = next(batches, None)
        yield held, following is None
        held = following
