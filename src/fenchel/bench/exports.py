"""Results as CSV or JSON, sorted and the same for the same results, and back into a store.

A row holds a whole record, so a store can continue from an export. Measurements of the machine (times,
memory) are left out by default: without them, exports of equal sweeps are equal files.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from fenchel.bench.plan import Request
from fenchel.bench.record import MEASURED, SCHEMA_VERSION, Cell, Record, canonical_json
from fenchel.bench.store import Store

FORMAT = "fenchel-results-1"
FORMATS = ("csv", "json")
_GZIP = b"\x1f\x8b"
"""How compressed files begin."""

_CELL_FIELDS = tuple(item.name for item in dataclasses.fields(Cell))
_RECORD_FIELDS = tuple(item.name for item in dataclasses.fields(Record) if item.name != "cell")
_RESULT_FIELDS = tuple(name for name in _RECORD_FIELDS if name not in MEASURED)
_TEXTS = {
    item.name
    for kind in (Cell, Record)
    for item in dataclasses.fields(kind)
    if item.type in ("str", "str | None", "Status")
}
_OPTIONAL_TEXTS = {item.name for item in dataclasses.fields(Cell) if item.type == "str | None"}


_NOT_ALWAYS = ("rounds", "bursts", "protect", "plugins", "model_files", "logits", "dim")
"""Columns that an export has only where some row has something in them."""


def columns(*, timings: bool = False, also: Collection[str] = ()) -> tuple[str, ...]:
    """The columns of an export, in order; those that it does not always have are named in `also`."""
    result = ("key", "error_percent", "asked", *_CELL_FIELDS, *_RESULT_FIELDS)
    result = tuple(name for name in result if name in also or name not in _NOT_ALWAYS)
    return (*result, *MEASURED) if timings else result


def rows(store: Store, *, timings: bool = False) -> Iterator[dict[str, Any]]:
    """Every record as a flat mapping from column to plain value."""
    asked = store.requests()
    shown = columns_of(store, timings=timings)
    for record in store.records():
        values = record.to_json()
        cell = values.pop("cell")
        names = [[name.method, name.selection] for name in asked.get(record.key, ())]
        done = record.status == "done"
        flat = {
            "key": record.key,
            "error_percent": round(record.error_percent, 6) if done else None,
            "asked": names,
            **cell,
            **values,
        }
        yield {column: flat[column] for column in shown}


def columns_of(store: Store, *, timings: bool = False) -> tuple[str, ...]:
    """The columns that an export of this store has."""
    used = {
        name
        for record in store.records()
        for name in _NOT_ALWAYS
        if getattr(record.cell, name) not in (None, {})
    }
    return columns(timings=timings, also=used)


def as_csv(store: Store, *, timings: bool = False) -> str:
    """Every record as a line; lists and mappings as JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns_of(store, timings=timings))
    for row in rows(store, timings=timings):
        writer.writerow([_written(value) for value in row.values()])
    return text.getvalue()


def as_json(store: Store, *, timings: bool = False) -> str:
    """The same rows as one JSON object."""
    values = {
        "format": FORMAT,
        "schema": SCHEMA_VERSION,
        "records": list(rows(store, timings=timings)),
    }
    return json.dumps(values, indent=1, sort_keys=True, allow_nan=False) + "\n"


def packed(text: str, path: str | Path) -> bytes:
    """The bytes of a file with this text, compressed where its name ends in `.gz`."""
    content = text.encode()
    return gzip.compress(content, mtime=0) if Path(path).suffix == ".gz" else content


def unpacked(path: str | Path) -> str:
    """The text of an export, compressed or not."""
    content = Path(path).read_bytes()
    if content.startswith(_GZIP):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"it cannot be decompressed: {error}") from error
    return content.decode("utf-8")  # as it is: a message may hold a carriage return


def import_file(store: Store, path: str | Path) -> tuple[int, int]:
    """Add the results of an export to a store: how many were new, and how many it had already.

    Nothing is added unless the whole file can be read.
    """
    file = Path(path)
    try:
        text = unpacked(file)
        is_json = text.lstrip().startswith("{")
        given = _json_rows(text) if is_json else _csv_rows(text)
        found = [_record_of(row) for row in given]
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no export {str(path)!r}. Check the path.") from None
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise ValueError(
            f"an export is a CSV or JSON file written by 'fenchel bench export'; {str(path)!r} is not, or "
            f"was edited ({type(error).__name__}: {error}). Export it again."
        ) from error
    new = store.add_records(
        (record for record, _ in found), (name for _, names in found for name in names)
    )
    return new, len(found) - new


def _json_rows(text: str) -> list[Mapping[str, Any]]:
    values = json.loads(text)
    if values.get("format") != FORMAT:
        raise ValueError(f"format is {values.get('format')!r}, not {FORMAT!r}")
    return list(values["records"])


def _csv_rows(text: str) -> Iterator[Mapping[str, Any]]:
    csv.field_size_limit(2**31 - 1)  # a mask of a large data set exceeds the default
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if missing := set(columns()) - set(reader.fieldnames or ()):
        raise ValueError(f"there is no column {', '.join(sorted(missing))}")
    for line in reader:
        if None in line or None in line.values():
            raise ValueError("a line has too many or too few columns")
        yield {column: _read(column, value) for column, value in line.items()}


def _record_of(row: Mapping[str, Any]) -> tuple[Record, list[Request]]:
    cell = {name: row[name] for name in _CELL_FIELDS if name in row or name not in _NOT_ALWAYS}
    record = Record.from_json(
        {"cell": cell, **{name: row[name] for name in _RECORD_FIELDS if name in row}}
    )
    if record.key != row["key"]:
        raise ValueError(f"the cell of {row['key']} has the key {record.key}")
    return record, [Request(record.key, *names) for names in row["asked"]]


def _written(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else canonical_json(value)


def _read(column: str, text: str) -> Any:
    """The inverse of `_written`, which leaves texts bare."""
    if column in _TEXTS or column == "key":
        return None if text == "" and column in _OPTIONAL_TEXTS else text
    if text == "":
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text  # statistics and parameters are a word or something else
