"""The rows of a stream, read once: a few images that changed their class, the bad ones, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
"""One image: its prediction, the source's, and what happened to it."""

MOST_SAMPLES = 24
MOST_BAD_IMAGES = 50
MOST_PAIRS = 50_000
MENDED, BROKEN, STILL_WRONG = "mended", "broken", "wrong before and after"
BAD_EVENTS = ("left-out", "unreadable")


@dataclass
class SpreadSample:
    """Some of many rows, evenly spread over all of them, whose number is not known before the end."""

    most: int
    kept: list[Row] = field(default_factory=list)
    seen: int = 0
    stride: int = 1

    def add(self, row: Row) -> None:
        """Keep every row at first; whenever there are too many, drop every second and take half as many."""
        if self.seen % self.stride == 0:
            self.kept.append(row)
            if len(self.kept) >= 4 * self.most:
                self.kept = self.kept[::2]
                self.stride *= 2
        self.seen += 1

    def rows(self) -> list[Row]:
        """At most `most` rows, in their order."""
        count = min(self.most, len(self.kept))
        return [self.kept[(2 * k + 1) * len(self.kept) // (2 * count)] for k in range(count)]


@dataclass
class StreamRows:
    """What the page shows of the rows; its size does not grow with their number.

    `pairs` counts (class of the source, class now) over the changed images. Of very many different pairs
    the rare ones are forgotten, so that a count may miss one image in `MOST_PAIRS` of all.
    """

    changed: SpreadSample = field(default_factory=lambda: SpreadSample(MOST_SAMPLES))
    compared: int = 0
    bad: list[Row] = field(default_factory=list)
    bad_count: int = 0
    pairs: Counter[tuple[int, int]] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    """How changed images with a label fared: `MENDED`, `BROKEN` or `STILL_WRONG`."""
    names: dict[int, str] = field(default_factory=dict)
    """The names of classes that the rows themselves give."""

    def add(self, row: Row) -> None:
        """Take one more row into account."""
        if row.get("event") in BAD_EVENTS:
            self.bad_count += 1
            if len(self.bad) < MOST_BAD_IMAGES:
                self.bad.append(row)
        now, before, label = (row.get(key) for key in ("prediction", "source_prediction", "label"))
        if now is None or before is None:
            return
        self.compared += 1
        if now == before:
            return
        self.changed.add(row)
        for index, key in ((now, "name"), (before, "source_name")):
            if row.get(key) and index not in self.names:
                self.names[index] = str(row[key])
        self.pairs[before, now] += 1
        if len(self.pairs) > 2 * MOST_PAIRS:
            self.pairs = Counter(dict(self.pairs.most_common(MOST_PAIRS)))
        if label is not None:
            self.outcomes[outcome_of(row)] += 1


def outcome_of(row: Row) -> str:
    """What a change of class did to an image with a label."""
    if row["prediction"] == row["label"]:
        return MENDED
    return BROKEN if row["source_prediction"] == row["label"] else STILL_WRONG


def read_rows(rows: Iterable[Row]) -> StreamRows:
    """Go through the rows once."""
    found = StreamRows()
    for row in rows:
        found.add(row)
    return found
