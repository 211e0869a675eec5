"""Which images an objective is learned on, and which it is scored on: never the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fenchel.data import Dataset
from fenchel.data.base import Indices, Reader
from fenchel.data.orders import shuffle
from fenchel.data.shifts import DerivedContent
from fenchel.data.stream import Shift
from fenchel.files import digest_of

SPLIT_SEED = 0
"""The seed of the shuffle that is cut in halves. It is fixed, so that runs of all seeds share a split."""


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to learn on and rows to score on, sorted; an image in both is an error."""

    learn: Indices
    score: Indices

    def __post_init__(self) -> None:
        for name, rows in (("learn", self.learn), ("score", self.score)):
            if len(rows) == 0:
                raise ValueError(
                    f"an objective needs images to {name} on; got none. Choose another range."
                )
        if len(both := np.intersect1d(self.learn, self.score)):
            raise ValueError(
                "an objective is scored on images that it was not learned on; "
                f"{len(both)} images are in both ({both[0]}..{both[-1]}). Choose ranges that do not "
                "overlap, or leave them out for two halves."
            )

    def record(self) -> dict[str, Any]:
        """Counts and digests, for the protocol."""
        return {
            "learn": {"images": len(self.learn), "digest": digest_of(self.learn)},
            "score": {"images": len(self.score), "digest": digest_of(self.score)},
        }

    def check(self, recorded: Mapping[str, Any]) -> None:
        """Refuse to go on if the images learned on are others than those that were recorded."""
        known = recorded.get("learn", {}).get("digest")
        if known != digest_of(self.learn):
            raise ValueError(
                "the images that an objective was learned on must be known, so that it is scored on "
                f"others; its file records {known!r}, here they are {digest_of(self.learn)!r}. Pass "
                "the data set, ranges and limit it was learned with."
            )


def split_rows(
    count: int, *, learn: str | None = None, score: str | None = None, limit: int | None = None
) -> Split:
    """`count` images in two: halves of a fixed shuffle, or the ranges START:STOP that are given.

    With one range only, the other part is all other images. `limit` keeps that many of each part.

    >>> split = split_rows(10, learn="0:4")
    >>> split.learn.tolist(), split.score.tolist()
    ([0, 1, 2, 3], [4, 5, 6, 7, 8, 9])
    """
    if limit is not None and limit < 1:
        raise ValueError(f"the limit must be at least 1; got {limit}. Leave it out for all images.")
    everything = shuffle(SPLIT_SEED, count)
    first = everything[: count // 2] if learn is None else _range(learn, count)
    second = everything[count // 2 :] if score is None else _range(score, count)
    if learn is None and score is not None:
        first = everything[~np.isin(everything, second)]
    if score is None and learn is not None:
        second = everything[~np.isin(everything, first)]
    return Split(np.sort(first[:limit]), np.sort(second[:limit]))


def part_of(shift: Shift, rows: Indices) -> Shift:
    """The shift on some of its images only."""
    dataset = shift.dataset
    chosen = replace(
        dataset,
        labels=dataset.labels[rows],
        reader=RowsReader(dataset.reader, rows),
        content=DerivedContent(dataset.content, f"rows {digest_of(rows)}"),
        origin=f"{dataset.origin}, {len(rows)} of {len(dataset)} images",
    )
    return replace(shift, dataset=chosen)


def common_length(datasets: list[Dataset]) -> int:
    """The number of images, which all shifts of one data set must share to be split alike."""
    lengths = sorted({len(dataset) for dataset in datasets})
    if len(lengths) != 1:
        raise ValueError(
            "shifts are split by image, so all must hold the same images; got data sets of "
            f"{', '.join(map(str, lengths))} images. Choose shifts of one data set."
        )
    return lengths[0]


@dataclass(frozen=True)
class RowsReader:
    """Reads some rows of another reader, under new numbers."""

    reader: Reader = field(repr=False)
    rows: Indices = field(repr=False)

    def __call__(self, indices: Indices) -> npt.NDArray[Any]:
        """The inputs at `rows[indices]`."""
        return self.reader(self.rows[indices])


def _range(text: str, count: int) -> Indices:
    begin, colon, end = text.partition(":")
    try:
        start, stop = int(begin or 0), int(end or count)
    except ValueError:
        start = stop = -1
    if not colon or not 0 <= start < stop <= count:
        raise ValueError(
            f"images are chosen as START:STOP with 0 <= START < STOP <= {count}; got {text!r}. "
            f"For example 0:{count // 2}."
        )
    return np.arange(start, stop)
