"""Batches that several processes read together: each decodes the images of its own share.

Which images make up a batch depends on which of them can be used, and nobody knows that before they are
decoded. So all ranks plan batches as if the rest could be used, decode their shares, tell each other what
cannot be used, and plan anew where there was any. The batches are those of one process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

from fenchel.adapters.group import Group
from fenchel.predict.images import ImageFiles
from fenchel.predict.reading import Batch, Picture, of_shape, read


def planned(count: int, size: int) -> int:
    """How many usable images make up the next batch, of `count` that are left (or more than `2 * size`).

    As `in_batches` has it: what would be a small last batch is shared with the one before.
    """
    if count >= 2 * size:
        return size
    return math.ceil(count / 2) if count > size else count


@dataclass
class SharedReading:
    """Cuts a stream of images into batches, of which this rank holds the values of its share.

    Attributes:
        order: the images that are left, in the order of the stream.
        first: an image that can be used; others must have its shape.
    """

    group: Group
    images: ImageFiles
    order: Sequence[int]
    first: Picture
    size: int
    workers: int = 2
    _bad: dict[int, Picture] = field(default_factory=dict)
    """What cannot be used, by its place in the order."""
    _known: int = 0
    """The places before this one are known to be usable, or are bad."""
    _waiting: dict[int, Future[Picture]] = field(default_factory=dict)

    def batches(self) -> Iterator[Batch]:
        """The batches, one after the other; all ranks must ask for each of them."""
        with ThreadPoolExecutor(self.workers, thread_name_prefix="fenchel-read") as pool:
            self._pool = pool
            start = 0
            try:
                while start < len(self.order):
                    batch, start = self._next(start)
                    yield batch
            finally:  # also where nobody wants the rest
                for future in self._waiting.values():
                    future.cancel()

    def _next(self, start: int) -> tuple[Batch, int]:
        """The batch from a place on, and the place after it."""
        while True:
            ahead = self._usable_from(start, 2 * self.size)
            unknown = [place for place in ahead if place >= self._known]
            if not unknown:
                break
            self._learn(unknown)
        taken = ahead[: planned(len(ahead), self.size)]
        end = len(self.order) if taken == ahead else taken[-1] + 1
        own = set(taken[self.group.rows(len(taken))])
        self._read_ahead(ahead[-1] + 1 if ahead else end)
        pictures = [self._picture(place, own) for place in range(start, end)]
        for place in [place for place in self._waiting if place < end]:
            self._waiting.pop(place).cancel()
        return Batch(tuple(pictures)), end

    def _usable_from(self, start: int, most: int) -> list[int]:
        """The next places that are not known to be bad."""
        places = (place for place in range(start, len(self.order)) if place not in self._bad)
        return list(islice(places, most))

    def _learn(self, unknown: Sequence[int]) -> None:
        """Find out with the others which of these places can be used; each looks at its share of them."""
        problems = []
        for part in (unknown[: self.size], unknown[self.size :]):
            for place in part[self.group.rows(len(part))]:
                picture = self._read(place).result()
                if picture.problem:
                    problems.append((place, picture))
        if self.group.any(bool(problems)):
            for found in self.group.objects(problems):
                self._bad |= dict(found)
        self._known = unknown[-1] + 1

    def _read_ahead(self, start: int) -> None:
        """Let threads decode what this rank will look at next, while the network is at work."""
        places = range(start, min(start + self.size, len(self.order)))
        for place in places[self.group.rows(len(places))]:
            self._read(place)

    def _read(self, place: int) -> Future[Picture]:
        if place not in self._waiting:
            self._waiting[place] = self._pool.submit(self._decoded, int(self.order[place]))
        return self._waiting[place]

    def _decoded(self, index: int) -> Picture:
        assert self.first.values is not None
        (picture,) = of_shape(self.first.values.shape, [read(self.images, index)])
        return picture

    def _picture(self, place: int, own: set[int]) -> Picture:
        """What this rank knows of an image: all of its own, and of the others' that they can be used."""
        if place in self._bad:
            return self._bad[place]
        return self._read(place).result() if place in own else Picture(int(self.order[place]), None)
