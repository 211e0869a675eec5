"""One stream of many, while somebody holds it."""

from __future__ import annotations

import json
from typing import Any

from fenchel.adapters import Session
from fenchel.adapters.state import State
from fenchel.streams.store import StreamFile, StreamStore


class Stream:
    """Its session, and notes that are saved with its state."""

    def __init__(self, name: str, session: Session, network: str, store: StreamStore) -> None:
        self.name, self.session = name, session
        self.notes: dict[str, Any] = {}
        self._network, self._store = network, store
        self._saved = self._now()
        self.is_stored = False

    def restore(self, found: StreamFile) -> None:
        """Go on where a file stands."""
        if found.network != self._network:
            raise ValueError(
                f"the state of stream {self.name!r} belongs to another network or method than this "
                "adapter's. Use the model and the method that it was learnt with, or forget the stream."
            )
        self.session.load_state_dict(found.tensors)
        if found.mode != "adapting":
            self.session.set_mode(found.mode)  # type: ignore[arg-type]
        self.notes = dict(found.notes)
        self._saved, self.is_stored = self._now(), True

    @property
    def is_changed(self) -> bool:
        """Whether anything differs from what the store has, or from a new stream if it has none."""
        return self._differs(self._now())

    def save(self) -> None:
        """Write the state and the notes, whole or not at all, unless the store has them already."""
        now = self._now()
        if not self._differs(now):
            return
        tensors = self.session.state_dict()
        mode = self.session.mode
        self._store.write(StreamFile(self.name, self._network, mode, self.notes, tensors))
        self._saved, self.is_stored = now, True

    def _now(self) -> tuple[State, str, str]:
        """What tells one moment from another; states are never changed in place."""
        return self.session.state, self.session.mode, json.dumps(self.notes)

    def _differs(self, now: tuple[State, str, str]) -> bool:
        return now[0] is not self._saved[0] or now[1:] != self._saved[1:]
