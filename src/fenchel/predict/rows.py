"""Files that grow while predictions are made: one row per image, whole rows only, valid at any moment."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fenchel.files import part_of

KINDS: dict[str, type] = {
    "image": str,
    "prediction": int,
    "name": str,
    "confidence": float,
    "source_prediction": int,
    "source_name": str,
    "source_confidence": float,
    "entropy": float,
    "batch": int,
    "event": str,
    "reason": str,
    "label": int,
    "label_name": str,
}
"""The columns of predictions, and what they hold; any but image, batch and event may be empty."""

PARQUET = ".parquet"
_CHUNK = 20_000

Row = Mapping[str, Any]


def columns(top: int = 0, classes: int = 0) -> dict[str, type]:
    """The columns of a run, with those for the `top` most probable classes and for all `classes`."""
    further: dict[str, type] = {}
    for rank in range(1, top + 1):
        further |= {f"top{rank}": int, f"top{rank}_name": str, f"top{rank}_confidence": float}
    return KINDS | further | {f"p{label}": float for label in range(classes)}


class GrowingFile:
    """A file that only grows. Every addition is one write, and `size` is where it ends."""

    def __init__(self, path: Path, *, keep: int = 0) -> None:
        """Continue a file after its first `keep` bytes; with 0, begin a new one."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if keep and (not path.is_file() or path.stat().st_size < keep):
            raise ValueError(
                f"{path} is shorter than the saved run says. Begin anew with force=True, or bring back the "
                "file as it was."
            )
        self._file = path.open("r+b" if keep else "wb", buffering=0)
        self._file.truncate(keep)
        self._file.seek(keep)
        self.size = keep

    def append(self, content: bytes) -> None:
        """Add bytes at the end; readers see all of them or none."""
        self._file.write(content)
        self.size += len(content)

    def sync(self) -> None:
        """Make what was written survive a power cut."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Nothing more is added."""
        self._file.close()


class CsvRows(GrowingFile):
    """Rows in a CSV file."""

    def __init__(self, path: Path, names: Sequence[str], *, keep: int = 0) -> None:
        super().__init__(path, keep=keep)
        self.names = list(names)
        if not keep:
            self.append(_csv([self.names]))

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows at the end."""
        self.append(_csv([_cell(row.get(name)) for name in self.names] for row in rows))

    def publish(self) -> None:
        """Show what was added so far: in a CSV file it is there already."""


class ParquetRows(CsvRows):
    """Rows in a Parquet file, written anew by `publish`. Between its times they wait in a CSV file beside it.

    The Parquet file is whole at any moment. It is written when its rows have doubled, and at the end.
    """

    def __init__(self, path: Path, kinds: Mapping[str, type], *, keep: int = 0) -> None:
        self._arrow = _pyarrow()
        self.kinds, self.target, self._published = dict(kinds), path, 0
        super().__init__(journal_of(path), list(kinds), keep=keep)

    def publish(self, *, at_last: bool = False) -> None:
        """Write the Parquet file, unless it holds more than half of the rows already."""
        if not at_last and self.size < 2 * self._published:
            return
        self._published = self.size
        arrow, parquet = self._arrow
        types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
        schema = arrow.schema([(name, types[kind]) for name, kind in self.kinds.items()])
        part = part_of(self.target)
        with parquet.ParquetWriter(part, schema) as writer:
            for rows in _chunks(read_rows(self.path, self.kinds)):
                writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
        os.replace(part, self.target)

    def close(self) -> None:
        self.publish(at_last=True)
        super().close()


def row_file(path: Path, kinds: Mapping[str, type], *, keep: int = 0) -> CsvRows:
    """The file for predictions that the ending of `path` names: `.parquet`, else CSV."""
    if path.suffix == PARQUET:
        return ParquetRows(path, kinds, keep=keep)
    return CsvRows(path, list(kinds), keep=keep)


def journal_of(path: Path) -> Path:
    """The CSV file in which the rows of `path` grow."""
    return path.with_name(path.name + ".rows.csv") if path.suffix == PARQUET else path


def read_rows(path: Path, kinds: Mapping[str, type] = KINDS) -> Iterator[dict[str, Any]]:
    """The rows of a CSV file of predictions, one at a time; None for what is empty."""
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield {
                name: None if row.get(name) in ("", None) else kind(row[name])
                for name, kind in kinds.items()
            }


def json_line(entry: Mapping[str, Any]) -> bytes:
    """One line of a log."""
    return (json.dumps(entry, allow_nan=False) + "\n").encode()


def _chunks(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    held: list[dict[str, Any]] = []
    for row in rows:
        held.append(row)
        if len(held) == _CHUNK:
            yield held
            held = []
    if held:
        yield held


def _csv(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _cell(value: Any) -> Any:
    return "" if value is None else f"{value:.6f}" if isinstance(value, float) else value


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "a .parquet file needs the package pyarrow. Install it with: pip install 'fenchel[parquet]'; "
            "or write a .csv file."
        ) from error
    return pyarrow, pyarrow.parquet
