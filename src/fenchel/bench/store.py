"""The results store: one SQLite file in WAL mode, in which every result lands exactly once.

| table | holds |
|---|---|
| `cells` | what was planned: key, cell as JSON, a text to sort by |
| `asked` | the names that sweeps use for a cell, and how its settings were chosen |
| `records` | outcomes, at most one per key: what is deterministic, what was measured, a checksum |
| `claims` | cells under way: by which driver, and until when the claim holds without renewal |

A record and the end of its claim are one transaction. A file that is damaged or of another kind is
refused with an error; no method ever empties or replaces a store.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from fenchel.bench.database import StoreError, damaged, explained, make_database, open_database
from fenchel.bench.plan import Plan, Request
from fenchel.bench.record import MEASURED, Cell, Record, canonical_json

__all__ = ["Counts", "Store", "StoreError"]


@dataclass(frozen=True)
class Counts:
    """How far the cells of a store, or some of them, are."""

    planned: int
    done: int
    failed: int
    running: int

    @property
    def pending(self) -> int:
        """The number of cells that no driver has begun."""
        return self.planned - self.done - self.failed - self.running


class Store:
    """A results store; made if there is none. Close it, or use it as a context."""

    def __init__(self, path: str | Path, *, readonly: bool = False) -> None:
        self.path = Path(path)
        if readonly and not self.path.is_file():
            raise FileNotFoundError(
                f"there is no store {str(path)!r}. 'fenchel bench SWEEP.toml' makes one beside the sweep."
            )
        if not self.path.exists():
            make_database(self.path)
        self._connection = open_database(self.path, readonly=readonly)

    @classmethod
    def open_readonly(cls, path: str | Path) -> Store:
        """An existing store, to read only: for reports, while a sweep may be running."""
        return cls(path, readonly=True)

    # --- what is known ---------------------------------------------------------------------------

    def records(self, keys: Collection[str] | None = None) -> Iterator[Record]:
        """Every record, or those of `keys`, sorted by what the cells are about."""
        query = (
            "SELECT key, cell, result, measured, checksum FROM records JOIN cells USING (key) "
            "ORDER BY sort, key"
        )
        for key, *texts in self._rows(query):
            if keys is None or key in keys:
                yield self._record(key, *texts)

    def cells(self) -> Iterator[Cell]:
        """Every cell that was ever planned, sorted like the records."""
        for (text,) in self._rows("SELECT cell FROM cells ORDER BY sort, key"):
            yield Cell.from_json(json.loads(text))

    def requests(self) -> dict[str, tuple[Request, ...]]:
        """For each key, the names that sweeps use for its cell: tables show one row per name."""
        found: dict[str, list[Request]] = {}
        query = "SELECT key, method, selection FROM asked ORDER BY key, method, selection"
        for key, method, selection in self._rows(query):
            found.setdefault(key, []).append(Request(key, method, selection))
        return {key: tuple(names) for key, names in found.items()}

    def statuses(self) -> dict[str, str]:
        """The status of every record, by key."""
        return dict(self._rows("SELECT key, status FROM records"))

    def counts(self, keys: Collection[str] | None = None) -> Counts:
        """How far all cells are, or those of `keys`."""
        chosen = {key for (key,) in self._rows("SELECT key FROM cells")}
        chosen = chosen if keys is None else chosen & set(keys)
        statuses = Counter(status for key, status in self.statuses().items() if key in chosen)
        claims = self._rows("SELECT key FROM claims WHERE expires > ?", time.time())
        running = sum(key in chosen for (key,) in claims)
        return Counts(len(chosen), statuses["done"], statuses["failed"], running)

    # --- what changes ----------------------------------------------------------------------------

    def add_plan(self, plan: Plan) -> None:
        """Remember the cells of a plan and their names in the sweep; what is known stays."""
        with self._transaction() as connection:
            self._add_cells(connection, (job.cell for job in plan.jobs), plan.requests)

    def add_record(self, record: Record, asked: Iterable[Request] = ()) -> bool:
        """Store a result unless its cell has one, and end the claim; True if it was stored."""
        return self.add_records([record], asked) == 1

    def add_records(self, records: Iterable[Record], asked: Iterable[Request] = ()) -> int:
        """Store results of cells that have none, all at once; how many were stored."""
        stored = 0
        with self._transaction() as connection:
            given = list(records)
            self._add_cells(connection, (record.cell for record in given), asked)
            for record in given:
                result = canonical_json(_without_cell(record.deterministic_json()))
                measured = canonical_json({name: record.to_json()[name] for name in MEASURED})
                row = (record.key, record.status, result, measured, _checksum(result))
                inserted = connection.execute(
                    "INSERT INTO records VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING", row
                )
                stored += inserted.rowcount
                connection.execute("DELETE FROM claims WHERE key = ?", (record.key,))
        return stored

    def forget_failures(self, keys: Collection[str]) -> int:
        """Remove the failed records of `keys`, so that their cells are run again."""
        with self._transaction() as connection:
            failed = connection.execute("SELECT key FROM records WHERE status = 'failed'")
            chosen = [(key,) for (key,) in failed.fetchall() if key in keys]
            connection.executemany("DELETE FROM records WHERE key = ?", chosen)
            return len(chosen)

    # --- claims ----------------------------------------------------------------------------------

    def claim(self, keys: Sequence[str], owner: str, seconds: float, count: int = 1) -> list[str]:
        """Take up to `count` cells of `keys` that have no record and no valid claim."""
        with self._transaction() as connection:
            now = time.time()
            taken = {key for (key,) in connection.execute("SELECT key FROM records")}
            query = "SELECT key FROM claims WHERE expires > ?"
            taken |= {key for (key,) in connection.execute(query, (now,))}
            free = [key for key in keys if key not in taken][:count]
            connection.executemany(
                "INSERT OR REPLACE INTO claims VALUES (?, ?, ?)",
                [(key, owner, now + seconds) for key in free],
            )
            return free

    def renew(self, owner: str, seconds: float) -> None:
        """Say that `owner` is alive: its claims hold for another `seconds`."""
        with self._transaction() as connection:
            query = "UPDATE claims SET expires = ? WHERE owner = ?"
            connection.execute(query, (time.time() + seconds, owner))

    def release(self, owner: str) -> None:
        """End all claims of `owner`."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM claims WHERE owner = ?", (owner,))

    def owners(self) -> list[str]:
        """Who holds claims."""
        return [owner for (owner,) in self._rows("SELECT DISTINCT owner FROM claims")]

    # --- inside ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the file; the last one to do so folds the log into it."""
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _rows(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with explained(self.path):
            return self._connection.execute(query, arguments).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, holding the write lock from the start so that no upgrade can fail."""
        with explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def _add_cells(
        self, connection: sqlite3.Connection, cells: Iterable[Cell], asked: Iterable[Request]
    ) -> None:
        connection.executemany(
            "INSERT INTO cells VALUES (?, ?, ?) ON CONFLICT (key) DO NOTHING",
            [(cell.key, canonical_json(cell.to_json()), sort_text(cell)) for cell in cells],
        )
        connection.executemany(
            "INSERT INTO asked VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            [(name.key, name.method, name.selection) for name in asked],
        )

    def _record(self, key: str, cell: str, result: str, measured: str, checksum: str) -> Record:
        if _checksum(result) != checksum:
            raise damaged(self.path, f"the record {key} does not match its checksum")
        record = Record.from_json(
            {**json.loads(result), **json.loads(measured), "cell": json.loads(cell)}
        )
        if record.key != key:
            raise damaged(self.path, f"the cell {key} does not match its key")
        return record


def sort_text(cell: Cell) -> str:
    """The text that cells are sorted by, so that those of one table stand together."""
    stream = [cell.data, cell.setting, [(shift.name, shift.severity) for shift in cell.shifts]]
    model = [cell.loss, cell.architecture, cell.model_digest]
    way = [cell.method, cell.options, cell.optimizer, cell.learning_rate, cell.temperature]
    return canonical_json([*stream, *model, *way, f"{cell.seed:09d}"])


def _without_cell(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "cell"}


def _checksum(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
