"""Images read ahead of the network in threads, and cut into batches of those that can be used."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fenchel.predict.images import ImageFiles

UNREADABLE, LEFT_OUT = "unreadable", "left-out"


@dataclass(frozen=True)
class Picture:
    """One image: its values, or why there are none. Another process may have the values."""

    index: int
    values: Tensor | None
    problem: str = ""
    """`unreadable` or `left-out`, and `reason` in words."""
    reason: str = ""


@dataclass(frozen=True)
class Batch:
    """Consecutive images of the stream; those that can be used go through the network together."""

    pictures: tuple[Picture, ...]

    @property
    def usable(self) -> tuple[Picture, ...]:
        """The images that can be used."""
        return tuple(picture for picture in self.pictures if not picture.problem)

    def inputs(self) -> Tensor:
        """What the network is given: images (n, C, H, W) in [0, 1]; float arrays as they are."""
        values = torch.stack([each.values for each in self.usable if each.values is not None])
        if values.dtype != torch.uint8:
            return values.float()
        return values.permute(0, 3, 1, 2).float() / 255


def read_ahead(
    images: ImageFiles, order: Iterable[int], *, workers: int = 2, ahead: int = 256
) -> Iterator[Picture]:
    """The images in the given order, while threads decode those to come (at most `ahead` of them)."""
    with ThreadPoolExecutor(workers, thread_name_prefix="fenchel-read") as pool:
        waiting: deque[Future[Picture]] = deque()
        try:
            for index in order:
                waiting.append(pool.submit(read, images, int(index)))
                if len(waiting) >= ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # also where nobody wants the rest
            for future in waiting:
                future.cancel()


def read(images: ImageFiles, index: int) -> Picture:
    """One image, or why it cannot be used."""
    try:
        values = np.array(images.read(index))
    except (OSError, ValueError) as error:
        return Picture(index, None, UNREADABLE, _one_line(error))
    if values.dtype == np.uint8:
        return Picture(index, torch.from_numpy(values if values.ndim == 3 else values[..., None]))
    bad = int((~np.isfinite(values)).sum())
    if bad:
        return Picture(index, None, LEFT_OUT, f"{bad} of {values.size} values are not finite")
    return Picture(index, torch.from_numpy(values))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def of_shape(shape: Iterable[int], pictures: Iterable[Picture]) -> Iterator[Picture]:
    """The images, of which those of another shape are left out."""
    shape = tuple(shape)
    for picture in pictures:
        if picture.values is None or picture.values.shape == shape:
            yield picture
        else:
            reason = f"{_shape(picture.values.shape)} where the first image has {_shape(shape)}"
            yield Picture(picture.index, None, LEFT_OUT, reason)


def _shape(shape: Iterable[int]) -> str:
    return " x ".join(str(length) for length in shape)


def in_batches(pictures: Iterable[Picture], size: int) -> Iterator[Batch]:
    """Batches of `size` usable images each. What would be a small last one is shared with the one before.

    Images that cannot be used come with a batch and do not count: the others are batched as if these
    did not exist. What follows a batch depends on the images after it alone, so that a run can be
    continued from there.
    """
    held: deque[Picture] = deque()
    usable = 0
    for picture in pictures:
        held.append(picture)
        usable += picture.values is not None
        if usable == 2 * size:
            yield _taken(held, size)
            usable -= size
    if usable > size:
        yield _taken(held, math.ceil(usable / 2))
    if held:
        yield Batch(tuple(held))


def _taken(held: deque[Picture], count: int) -> Batch:
    """The first images of a queue, as many as it takes to have `count` usable ones."""
    taken = []
    while count:
        picture = held.popleft()
        taken.append(picture)
        count -= picture.values is not None
    return Batch(tuple(taken))


def first_usable(images: ImageFiles, order: Iterable[int]) -> Picture:
    """The first image that can be used: what the network is tried on before a run begins."""
    reason = ""
    for index in order:
        picture = read(images, int(index))
        if picture.values is not None:
            return picture
        reason = reason or f"{images.names[picture.index]}: {picture.reason}"
    raise ValueError(f"none of the {len(images)} images can be used. The first: {reason}")
