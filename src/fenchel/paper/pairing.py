"""Every method of a line against the conjugate: over images, over streams, corrected for their number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fenchel.names import format_spec, parse_spec
from fenchel.paper.comparison import Comparison
from fenchel.report.several import MARK, holm, told_apart
from fenchel.report.significance import Difference, compare_records
from fenchel.report.student import StreamDifference, over_streams

REFERENCE = "conjugate"


@dataclass(frozen=True)
class Paired:
    """A method's error minus the conjugate's on the same streams, in percent.

    Attributes:
        images: by paired bootstrap over images.
        streams: Student's over shifts, or over seeds where there is one shift.
        corrected: the p-value over images by Holm, over all comparisons with the same source.
    """

    images: Difference
    streams: StreamDifference
    corrected: float

    @property
    def interval(self) -> str:
        """`-1.20 [-1.50, -0.90] †`: over images, marked where the two are told apart."""
        marked = told_apart(self.corrected, self.streams.low, self.streams.high)
        return self.images.interval + (f" {MARK}" if marked else "")


Differences = Mapping[tuple[str, str], Paired]
"""A method's error minus the conjugate's, by (title of the line, method)."""
NOT_PAIRED: Differences = MappingProxyType({})


def differences(rows: Sequence[Comparison]) -> Differences:
    """Every method against the conjugate on the same line, where both have results.

    A method with another objective inside is compared with itself with the conjugate inside. A run that
    is the conjugate's own under another name is no comparison to correct for.
    """
    by_name = {(row.line.title, row.method): row for row in rows}
    found: dict[tuple[str, str], tuple[Difference, StreamDifference]] = {}
    families: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for row in rows:
        place, source = (row.line.title, row.method), row.line.source
        reference = by_name.get((row.line.title, compared_with(row.method)))
        if reference is None or row is reference:
            continue
        if (pair := paired(row, reference)) is not None:
            found[place] = pair
            if _keys(row) != _keys(reference):
                families.setdefault((source.data, source.loss), {})[place] = pair[0].p_value
    corrected = {key: p for family in families.values() for key, p in holm(family).items()}
    return {key: Paired(*pair, corrected.get(key, 1.0)) for key, pair in found.items()}


def paired(row: Comparison, reference: Comparison) -> tuple[Difference, StreamDifference] | None:
    """The difference of two runs over images and over streams; None if they share no stream."""
    limited = any(record.cell.limit is not None for record in row.records)
    images = compare_records(row.records, reference.records, limited=limited)
    streams = over_streams(row.records, reference.records)
    return None if images is None or streams is None else (images, streams)


def _keys(row: Comparison) -> set[str]:
    return {record.key for record in row.records}


def compared_with(method: str) -> str:
    """The method that another one is compared with."""
    name, options = parse_spec(method)
    if options.pop("objective", None) is None:
        return REFERENCE
    return format_spec(name, options)
