"""The libsvm text format: `label index:value index:value ...`, one sample per line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from fenchel.data.formats.compressed import read_bytes
from fenchel.files import bad_file

MOST_BYTES = 1 << 28
MOST_LINES = 1 << 18


def read_libsvm(
    path: Path, *, features: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Dense values (N, features) and integer labels (N,); entries left out of a line are zero."""
    content = read_bytes(path, limit=MOST_BYTES)
    if (count := content.count(b"\n")) > MOST_LINES:
        raise bad_file(path, f"may hold at most {MOST_LINES} lines", str(count))
    try:
        lines = content.decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise bad_file(path, "must be ASCII text of libsvm lines", str(error)) from error
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise bad_file(path, "must hold at least one libsvm line", "none")
    values = np.zeros((len(lines), features))
    labels = np.zeros(len(lines), np.int64)
    for row, line in enumerate(lines):
        try:
            labels[row], columns, entries = _parse(line)
        except (ValueError, OverflowError) as error:
            rule = f"line {row + 1} must read 'label index:value ...'"
            raise bad_file(path, rule, f"{line[:60]!r} ({error})") from error
        if columns.size and (columns.min() < 1 or columns.max() > features):
            rule = f"line {row + 1} must have indices in 1..{features}"
            raise bad_file(path, rule, f"{columns.min()}..{columns.max()}")
        values[row, columns - 1] = entries
    return values, labels


def _parse(line: str) -> tuple[int, npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    label, *pairs = line.split()
    if any(pair.count(":") != 1 for pair in pairs):
        raise ValueError("an entry is not index:value")
    flat = [text for pair in pairs for text in pair.split(":")]
    entries = np.array(flat[1::2], dtype=np.float64)
    if not np.isfinite(entries).all():
        raise ValueError("a value is not finite")
    number = float(label)
    if number != int(number):
        raise ValueError("the label is not an integer")
    return int(number), np.array(flat[0::2], dtype=np.int64), entries
