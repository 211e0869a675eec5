"""Lists of pictures: `path label` on each line, paths relative to the list."""

from __future__ import annotations

from pathlib import Path

from fenchel.fetching.archive import checked_name
from fenchel.files import bad_file


def read_image_list(path: Path) -> tuple[list[str], list[int]]:
    """File names and labels of a text file with `name label` on each line."""
    files, labels = [], []
    for number, line in enumerate(path.read_text("latin1").splitlines(), start=1):
        if not line.strip():
            continue
        name, _, label = line.rpartition(" ")
        if not name or not (label.isascii() and label.isdigit()) or len(label) > 6:
            raise bad_file(path, f"line {number} must read 'name label'", repr(line[:60]))
        try:
            files.append(checked_name(name.strip()).as_posix())
        except ValueError as error:
            raise bad_file(path, f"line {number} must name a file below", str(error)) from error
        labels.append(int(label))
    if not files:
        raise bad_file(path, "must list at least one picture", "none")
    return files, labels
