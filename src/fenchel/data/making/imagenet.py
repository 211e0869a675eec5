"""Writing ImageNet-C in the public layout: `<corruption>/<severity>/<wnid>/<name>.JPEG`, quality 85.

The pixels depend on (seed, image, corruption, severity) alone. A corruption at a severity is written to a
folder beside its place, which takes its name when it is whole; an interrupted call goes on with the
pictures that are there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from fenchel.data.base import Dataset, Indices, Labels
from fenchel.data.corruptions import CORRUPTIONS
from fenchel.data.making.workers import pool
from fenchel.data.manifest import FILE as MANIFEST
from fenchel.data.manifest import Made, read_manifest, write_manifest
from fenchel.data.orders import spread
from fenchel.data.pictures import PictureReader
from fenchel.data.sets.imagenet_c import CONSTANTS, QUALITY
from fenchel.data.shifts import corrupted, textures_mark
from fenchel.files import digest_of
from fenchel.progress import progress

BYTES_PER_PICTURE = 32_000
"""What a picture of 224 x 224 takes on average over corruptions and severities."""


@dataclass(frozen=True)
class _Block:
    """A unit of work: some pictures of one corruption at one severity."""

    part: Path
    corruption: str
    severity: int
    indices: tuple[int, ...]


@dataclass(frozen=True)
class _Maker:
    """What every worker needs to turn a block into files."""

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
        targets = {index: block.part / self.name_of(index) for index in block.indices}
        missing = [index for index, target in targets.items() if not target.exists()]
        for index, pixels in zip(missing, shifted.images(missing), strict=True):
            _save(pixels, targets[index])
        return len(block.indices)

    def name_of(self, index: int) -> PurePosixPath:
        """`<wnid>/<name>.JPEG` of a picture, as the clean one is called."""
        assert isinstance(self.clean.reader, PictureReader)
        return PurePosixPath(self.clean.reader.files[index]).with_suffix(".JPEG")


def _save(pixels: np.ndarray, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".part")
    with unfinished.open("wb") as sink:
        Image.fromarray(pixels).save(sink, "JPEG", quality=QUALITY)
    os.replace(unfinished, target)


def make_pictures(
    clean: Dataset,
    folder: Path,
    *,
    corruptions: Sequence[str],
    severities: Sequence[int],
    images: int | None,
    seed: int,
    textures: Path | None,
    workers: int,
    batch_size: int,
    say: Callable[[str], None],
) -> None:
    """Make ImageNet-C, or a part of it, from clean pictures; `say` is told the disk use beforehand."""
    chosen = _chosen(clean.labels, images)
    maker = _Maker(clean, seed, textures)
    jobs = [
        _Job(folder / corruption / str(severity), corruption, severity, chosen, maker)
        for corruption in corruptions
        for severity in severities
    ]
    jobs = [job for job in jobs if not job.is_done()]
    if not jobs:
        return
    _state_disk_use(folder, len(jobs) * len(chosen), say)
    with (
        pool(maker, workers) as run,
        progress("ImageNet-C images", len(jobs) * len(chosen)) as bar,
    ):
        for job in jobs:
            bar.note(f"{job.corruption} {job.severity}")
            for count in run(job.blocks(batch_size)):
                bar.advance(count)
            job.finish()


def _chosen(labels: Labels, count: int | None) -> Indices:
    """Which images are made: all, or as many of each class as of any other."""
    if count is None:
        return np.arange(len(labels))
    if count > len(labels):
        raise ValueError(
            f"images must be no more than there are; got {count}, and the clean data set has {len(labels)}. "
            "Choose fewer."
        )
    return np.sort(spread(labels, count))


def _state_disk_use(folder: Path, pictures: int, say: Callable[[str], None]) -> None:
    """Say how much the pictures will take, and refuse to start where that is more than there is."""
    place = folder
    while not place.exists():
        place = place.parent
    free, needed = shutil.disk_usage(place).free, pictures * BYTES_PER_PICTURE
    say(
        f"{pictures:,} pictures of 224 x 224 take about {needed / 1e9:.1f} GB in {folder} "
        f"({free / 1e9:.1f} GB are free)"
    )
    if needed > free:
        raise OSError(
            f"{folder} has {free / 1e9:.1f} GB free, and the pictures need about {needed / 1e9:.1f} GB. Make "
            "fewer, choose another folder with --out, or read imagenet-c:on-the-fly, which needs no disk."
        )


@dataclass(frozen=True)
class _Job:
    """One corruption at one severity: whether it is there, what is to be made, and how it is finished."""

    folder: Path
    corruption: str
    severity: int
    chosen: Indices
    maker: _Maker

    @property
    def part(self) -> Path:
        """The folder that is being filled; other settings fill another one."""
        record = self._record("")
        mark = digest_of(str(record))[:8]
        return self.folder.with_name(f".{self.severity}-{mark}.part")

    def is_done(self) -> bool:
        """Whether the pictures are there as these settings make them."""
        made = read_manifest(self.folder).get(self.corruption)
        if made is None and self.folder.is_dir() and any(self.folder.iterdir()):
            raise ValueError(
                f"{self.folder} was not made here, and published files are not overwritten. "
                "Choose another folder with --out."
            )
        if made is None or made != self._record(made.md5):
            return False
        return made.md5 == _md5_of_pictures(self.folder)

    def blocks(self, batch_size: int) -> Iterator[_Block]:
        for begin in range(0, len(self.chosen), batch_size):
            indices = tuple(self.chosen[begin : begin + batch_size].tolist())
            yield _Block(self.part, self.corruption, self.severity, indices)

    def finish(self) -> None:
        """The manifest lists the pictures, then their folder takes its name."""
        record = self._record(_md5_of_pictures(self.part))
        write_manifest(self.part, {self.corruption: record})
        if self.folder.exists():
            shutil.rmtree(self.folder)
        os.replace(self.part, self.folder)

    def _record(self, md5: str) -> Made:
        textured = CORRUPTIONS[self.corruption].textured
        return Made(
            severities=(self.severity,),
            seed=self.maker.seed,
            constants=CONSTANTS,
            clean=digest_of(self.maker.clean.digest, self.chosen),
            textures=textures_mark(self.maker.textures) if textured else "",
            md5=md5,
        )


def _md5_of_pictures(folder: Path) -> str:
    """One md5 over the names and bytes of all pictures, in the order of their names."""
    hasher = hashlib.md5(usedforsecurity=False)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.name != MANIFEST:
            hasher.update(path.relative_to(folder).as_posix().encode())
            hasher.update(path.read_bytes())
    return hasher.hexdigest()
