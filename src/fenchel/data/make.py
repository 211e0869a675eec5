"""Writing CIFAR-10-C and CIFAR-100-C in the public layout, from the clean test set.

The pixels depend on (seed, image, corruption, severity) alone, so neither the number of workers
nor the batch size can change a byte. Workers write their rows straight into the file through a
memory map: no pixel crosses a process boundary, and memory stays at a few batches each.

With only some severities, a file still has the public shape and each severity its public
rows; the other rows stay empty (holes that take no disk space) and the manifest says so.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fenchel.data.base import Dataset, Indices
from fenchel.data.corruptions import CORRUPTIONS, SEVERITIES
from fenchel.data.home import dataset_folder
from fenchel.data.manifest import Made, read_manifest, write_manifest
from fenchel.data.sets.cifar_c import PUBLIC_FOLDERS, read_clean
from fenchel.data.shifts import corrupted, textures_mark
from fenchel.files import md5_of
from fenchel.names import unknown
from fenchel.progress import progress

CONSTANTS = "cifar"


@dataclass(frozen=True)
class _Block:
    """A unit of work: some images of one severity, written to their rows of a file."""

    part: Path
    corruption: str
    severity: int
    begin: int
    end: int


@dataclass(frozen=True)
class _Maker:
    """What every worker needs to turn a block into bytes on disk."""

    clean: Dataset
    seed: int
    textures: Path | None

    def __call__(self, block: _Block) -> int:
        shifted = corrupted(
            self.clean,
            block.corruption,
            block.severity,
            constants=CONSTANTS,
            seed=self.seed,
            textures=self.textures,
        )
        indices: Indices = np.arange(block.begin, block.end)
        rows = (block.severity - 1) * len(self.clean) + indices[0]
        target = np.lib.format.open_memmap(block.part, mode="r+")
        target[rows : rows + len(indices)] = shifted.images(indices)
        target.flush()
        return len(indices)


def make(
    name: str,
    *,
    out: str | Path | None = None,
    root: str | Path | None = None,
    corruptions: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    textures: str | Path | None = None,
    workers: int | None = None,
    batch_size: int = 250,
) -> Path:
    """Make `cifar10-c` or `cifar100-c`; the folder with the npy files is returned.

    Args:
        name: the data set to make.
        out: the folder in which its public folder is created; by default the cache folder.
        root: the folder of the clean data set; by default the cache folder.
        corruptions: by default all nineteen.
        severities: by default all five.
        seed: the seed of the noise.
        textures: folder of the original frost textures; procedural ones without it.
        workers: processes; by default one per core.
        batch_size: images per block of work; no effect on the result.

    Files that the manifest lists with the same settings are kept, so an interrupted call continues.
    """
    if name not in PUBLIC_FOLDERS:
        raise unknown("data set to make", name, PUBLIC_FOLDERS)
    corruptions = list(dict.fromkeys(corruptions or CORRUPTIONS))
    _check(corruptions, severities, workers, batch_size)
    clean = read_clean(name, None if root is None else Path(root))
    maker = _Maker(clean, seed, None if textures is None else Path(textures))
    folder = dataset_folder(name, out)
    if folder.name != PUBLIC_FOLDERS[name]:
        folder = folder / PUBLIC_FOLDERS[name]
    jobs = [_Job.plan(folder, corruption, severities, maker) for corruption in corruptions]
    jobs = [job for job in jobs if job.missing]
    if not jobs:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    _save_labels(folder, clean)
    total = sum(len(job.missing) for job in jobs) * len(clean)
    with (
        _pool(maker, workers or os.cpu_count() or 1) as run,
        progress(f"{PUBLIC_FOLDERS[name]} images", total) as bar,
    ):
        for job in jobs:
            bar.note(job.corruption)
            with job.unfinished(len(clean)):
                for count in run(job.blocks(len(clean), batch_size)):
                    bar.advance(count)
    return folder


def _check(
    corruptions: Sequence[str], severities: Sequence[int], workers: int | None, batch_size: int
) -> None:
    for corruption in corruptions:
        if corruption not in CORRUPTIONS:
            raise unknown("corruption", corruption, CORRUPTIONS)
    if not severities or any(severity not in SEVERITIES for severity in severities):
        raise ValueError(f"severities must be among 1 to 5; got {list(severities)}.")
    if batch_size < 1 or (workers is not None and workers < 1):
        raise ValueError(
            f"workers and batch size must be at least 1; got {workers} and {batch_size}."
        )


def _save_labels(folder: Path, clean: Dataset) -> None:
    path = folder / "labels.npy"
    part = folder / "labels.npy.part"
    with part.open("wb") as sink:
        np.save(sink, np.tile(clean.labels, len(SEVERITIES)))
    os.replace(part, path)


@dataclass(frozen=True)
class _Job:
    """One corruption's file: what of it exists, what is missing, and how it is finished."""

    folder: Path
    corruption: str
    kept: tuple[int, ...]
    missing: tuple[int, ...]
    maker: _Maker

    @staticmethod
    def plan(folder: Path, corruption: str, severities: Iterable[int], maker: _Maker) -> _Job:
        made = read_manifest(folder).get(corruption)
        path = folder / f"{corruption}.npy"
        kept: tuple[int, ...] = ()
        if made is None and path.exists():
            raise ValueError(
                f"{path} was not made here, and published files are not overwritten. "
                "Choose another folder with --out."
            )
        if made is not None and path.exists():
            same = _record(corruption, made.severities, maker, made.md5) == made
            kept = made.severities if same and md5_of(path) == made.md5 else ()
        missing = tuple(sorted(set(severities) - set(kept)))
        return _Job(folder, corruption, kept, missing, maker)

    @property
    def path(self) -> Path:
        return self.folder / f"{self.corruption}.npy"

    @property
    def part(self) -> Path:
        return self.folder / f"{self.corruption}.npy.part"

    @contextmanager
    def unfinished(self, count: int) -> Iterator[None]:
        """The block that fills the file; it takes its name only if nothing went wrong."""
        try:
            self._prepare(count)
            yield
            self._finish()
        finally:
            self.part.unlink(missing_ok=True)

    def _prepare(self, count: int) -> None:
        """A new sparse file of the public shape, with the rows that are kept."""
        shape = (len(SEVERITIES) * count, *self.maker.clean.shape)
        fresh = np.lib.format.open_memmap(self.part, mode="w+", dtype=np.uint8, shape=shape)
        for severity in self.kept:
            rows = slice((severity - 1) * count, severity * count)
            fresh[rows] = np.lib.format.open_memmap(self.path, mode="r")[rows]
        fresh.flush()

    def blocks(self, count: int, batch_size: int) -> Iterator[_Block]:
        for severity in self.missing:
            for begin in range(0, count, batch_size):
                end = min(begin + batch_size, count)
                yield _Block(self.part, self.corruption, severity, begin, end)

    def _finish(self) -> None:
        """The file takes its name, then the manifest lists it."""
        severities = tuple(sorted({*self.kept, *self.missing}))
        record = _record(self.corruption, severities, self.maker, md5_of(self.part))
        os.replace(self.part, self.path)
        write_manifest(self.folder, {**read_manifest(self.folder), self.corruption: record})


def _record(corruption: str, severities: tuple[int, ...], maker: _Maker, md5: str) -> Made:
    textured = CORRUPTIONS[corruption].textured
    return Made(
        severities=severities,
        seed=maker.seed,
        constants=CONSTANTS,
        clean=maker.clean.digest,
        textures=textures_mark(maker.textures) if textured else "",
        md5=md5,
    )


Run = Callable[[Iterable[_Block]], Iterator[int]]


@contextmanager
def _pool(maker: _Maker, workers: int) -> Iterator[Run]:
    """A function that works through blocks, here or in processes, yielding the images done."""
    if workers == 1:
        yield lambda blocks: map(maker, blocks)
        return
    context = multiprocessing.get_context("spawn")  # a forked torch may deadlock
    with ProcessPoolExecutor(workers, context, initializer=_start, initargs=(maker,)) as pool:
        yield lambda blocks: _in_processes(pool, blocks, 2 * workers)


_maker: _Maker | None = None


def _start(maker: _Maker) -> None:
    """Hand the maker to a worker once, rather than with every block."""
    global _maker
    _maker = maker


def _work(block: _Block) -> int:
    if _maker is None:
        raise RuntimeError("a worker was used before it was started")
    return _maker(block)


def _in_processes(
    pool: ProcessPoolExecutor, blocks: Iterable[_Block], in_flight: int
) -> Iterator[int]:
    running: set[Future[int]] = set()
    for block in blocks:
        if len(running) >= in_flight:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
        with _interruption_deferred():
            running.add(pool.submit(_work, block))
    for future in running:
        yield future.result()


@contextmanager
def _interruption_deferred() -> Iterator[None]:
    """In the block, SIGINT is blocked, and workers started in it inherit that: the parent alone reacts."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
