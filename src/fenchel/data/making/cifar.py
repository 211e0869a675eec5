"""Writing CIFAR-10-C and CIFAR-100-C in the public layout, from the clean test set.

The pixels depend on (seed, image, corruption, severity) alone, so neither the number of workers
nor the batch size can change a byte. Workers write their rows straight into the file through a
memory map: no pixel crosses a process boundary, and memory stays at a few batches each.

With only some severities, a file still has the public shape and each severity its public
rows; the other rows stay empty (holes that take no disk space) and the manifest says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fenchel.data.base import Dataset, Indices
from fenchel.data.corruptions import CORRUPTIONS, SEVERITIES
from fenchel.data.making.workers import pool
from fenchel.data.manifest import Made, read_manifest, write_manifest
from fenchel.data.shifts import corrupted, textures_mark
from fenchel.files import md5_of
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


def make_arrays(
    name: str,
    clean: Dataset,
    folder: Path,
    *,
    corruptions: Sequence[str],
    severities: Sequence[int],
    seed: int,
    textures: Path | None,
    workers: int,
    batch_size: int,
) -> None:
    """Make the npy files of `name` in `folder`; what the manifest lists with the same settings is kept."""
    maker = _Maker(clean, seed, textures)
    jobs = [_Job.plan(folder, corruption, severities, maker) for corruption in corruptions]
    jobs = [job for job in jobs if job.missing]
    if not jobs:
        return
    folder.mkdir(parents=True, exist_ok=True)
    _save_labels(folder, clean)
    total = sum(len(job.missing) for job in jobs) * len(clean)
    with pool(maker, workers) as run, progress(f"{name} images", total) as bar:
        for job in jobs:
            bar.note(job.corruption)
            with job.unfinished(len(clean)):
                for count in run(job.blocks(len(clean), batch_size)):
                    bar.advance(count)


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
