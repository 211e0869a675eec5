"""The SQLite file under a store: made whole or not at all, and refused when it cannot be trusted."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

APPLICATION_ID = 0x46656E63  # "Fenc"
FORMAT_VERSION = 1
BUSY_SECONDS = 60.0

_TABLES = """
CREATE TABLE cells (key TEXT PRIMARY KEY, cell TEXT NOT NULL, sort TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE asked (
    key TEXT NOT NULL REFERENCES cells, method TEXT NOT NULL, selection TEXT NOT NULL,
    PRIMARY KEY (key, method, selection)) WITHOUT ROWID;
CREATE TABLE records (
    key TEXT PRIMARY KEY REFERENCES cells, status TEXT NOT NULL, result TEXT NOT NULL,
    measured TEXT NOT NULL, checksum TEXT NOT NULL);
CREATE TABLE claims (
    key TEXT PRIMARY KEY REFERENCES cells, owner TEXT NOT NULL, expires REAL NOT NULL
    ) WITHOUT ROWID;
"""


class StoreError(ValueError):
    """A store that is damaged, or a file that is no store."""


def damaged(path: Path, reason: str) -> StoreError:
    """The error for a file that cannot be trusted."""
    return StoreError(
        f"a store must be a whole SQLite file of fenchel; {str(path)!r} is damaged or something else "
        f"({reason}). It was left as it is. Restore a copy, or move it away and continue from an export "
        "with 'fenchel bench import'."
    )


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an error of SQLite into one that says what to do."""
    try:
        yield
    except sqlite3.IntegrityError:
        raise  # a mistake of ours, not of the file
    except sqlite3.OperationalError as error:
        raise OSError(f"the store {str(path)!r} cannot be used: {error}.") from error
    except sqlite3.DatabaseError as error:
        raise damaged(path, str(error)) from error


def make_database(path: Path) -> None:
    """Make an empty store under another name first: a crash leaves no incomplete store."""
    if (log := path.with_name(path.name + "-wal")).exists():
        raise damaged(path, f"it is gone, but its log {log.name} is there")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".store-", dir=path.parent) as folder:
        new = Path(folder) / "new"
        with explained(path), closing(sqlite3.connect(new, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_TABLES)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        try:
            os.link(new, path)
        except FileExistsError:
            return  # another driver was faster
        except OSError:  # a file system without links
            os.replace(new, path)


def open_database(path: Path, *, readonly: bool) -> sqlite3.Connection:
    """A connection to an existing store, after a look at its pages.

    Nothing but SQLite opens the file: to close it again would take the locks of every connection in this
    process, and another process would believe that nobody writes.
    """
    mode = "rw"
    if readonly:
        # SQLite keeps an index of the log beside the file; where it cannot, nobody writes either.
        mode = "ro" if os.access(path.parent, os.W_OK) else "ro&immutable=1"
    with explained(path):
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode={mode}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            _check(path, connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
    return connection


def _check(path: Path, connection: sqlite3.Connection) -> None:
    ((kind,),) = connection.execute("PRAGMA application_id").fetchall()
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    if kind != APPLICATION_ID:
        raise damaged(path, "another program made it")
    if version != FORMAT_VERSION:
        raise StoreError(
            f"this version reads stores of format {FORMAT_VERSION}; {str(path)!r} has format "
            f"{version}. Use the version that made it, or export and import."
        )
    findings = connection.execute("PRAGMA quick_check(3)").fetchall()
    if findings != [("ok",)]:
        raise damaged(path, "; ".join(str(row[0]) for row in findings))
