"""Streams by name on one network: some in memory, the others on the disk, every one as if it were alone."""

from __future__ import annotations

import tempfile
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from fenchel.adapters import AdaptationWarning, Adapter, Health
from fenchel.files import digest_of
from fenchel.streams.gathering import MicroBatches, rows_of_each
from fenchel.streams.store import StreamStore, check_name
from fenchel.streams.stream import Stream

RESIDENT = 100
"""States that are kept in memory, unless another number is given."""


class _Place:
    """The place of a stream in memory. Whoever has its lock may use the stream, or put it away."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.leaving = False
        """Whether its state is on its way to the disk, to make room."""
        self.stream: Stream | None = None


class Streams:
    """Many streams on one network, by name. Call it with a name and a batch.

    Every stream equals its own serial run bit for bit, whatever happens to the others. At most `resident`
    states are in memory (or as many as are at work, if that is more); the least recently used go to
    files in `folder` and come back when they are wanted. Without a folder they go to a temporary one, and
    end with this object. Threads may call it at once: different streams run side by side, the batches of
    one stream one after the other.

    >>> import fenchel, torch
    >>> network = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))
    >>> adapted = fenchel.adapt(network, trained_with="cross-entropy")
    >>> with fenchel.Streams(adapted, resident=2) as streams:
    ...     for name in ("north", "south", "west", "north"):
    ...         logits = streams(name, torch.randn(20, 4))
    ...     streams.names(), streams.health("north").batches
    (['north', 'south', 'west'], 2)
    """

    def __init__(
        self,
        adapter: Adapter,
        *,
        folder: str | Path | None = None,
        resident: int = RESIDENT,
        owner: str = "streams",
        owns: Callable[[str], bool] = lambda name: True,
        seconds: float = 0.0,
    ) -> None:
        """`owner`, `owns` and `seconds` are for processes that share a folder: see `StreamStore`."""
        if resident < 1:
            raise ValueError(f"resident must be at least 1 state; got {resident}. Pass more.")
        if adapter.settings.group is not None:
            raise ValueError(
                "streams are adapted in one process each; this adapter shares its batches with others "
                "(group=). Make one without group=."
            )
        self.adapter, self.resident = adapter, resident
        self._temporary = None
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="fenchel-streams-")
            folder = self._temporary.name
        self.store = StreamStore(Path(folder), owner=owner, owns=owns, seconds=seconds)
        self.network = network_digest(adapter)
        self._lock = threading.Lock()
        self._places: OrderedDict[str, _Place] = OrderedDict()
        self._stored = set(self.store.names())
        self._closed = False

    # --- using -----------------------------------------------------------------------------------

    def __call__(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Adapt the stream of that name to a batch and predict it: the model's own signature and output."""
        with self.held(name) as stream:
            return stream.session(*args, **kwargs)

    @contextmanager
    def held(self, name: str) -> Iterator[Stream]:
        """In the block, the stream of that name, which nobody else uses or puts away meanwhile.

        A stream begins with its first batch: one that is only looked at leaves no trace.
        """
        check_name(name)
        place = self._taken(name)
        try:
            with place.lock:
                self._require_open()  # whoever waited for the lock may have waited for the end
                if place.stream is None:
                    place.stream = self._opened(name)
                try:
                    yield place.stream
                finally:
                    if not place.stream.is_stored and not place.stream.is_changed:
                        place.stream = None  # nothing ever happened in it
        finally:
            self._given_back(name, place)
        self._make_room()

    def gathering(self, **settings: Any) -> MicroBatches:
        """Gather small requests of each stream into batches; see `MicroBatches` for the settings."""

        def answer(name: str, requests: Any) -> list[Any]:
            parts = [request.samples for request in requests]
            return rows_of_each(self(name, torch.cat(parts)), [len(part) for part in parts])

        return MicroBatches(answer, **settings)

    def health(self, name: str) -> Health:
        """What happened in a stream so far."""
        with self._known(name) as stream:
            return stream.session.health()

    def reset(self, name: str) -> None:
        """Let a stream forget all adaptation: its next batch starts from the source model."""
        with self._known(name) as stream:
            stream.session.reset()

    def forget(self, name: str) -> None:
        """End a stream, its counters included; nothing of it remains."""
        check_name(name)
        place = self._taken(name)
        try:
            with place.lock:
                self.store.remove(name)
                place.stream = None
                with self._lock:
                    self._stored.discard(name)
        finally:
            self._given_back(name, place)

    def names(self) -> list[str]:
        """The streams that there are, in memory and on the disk, sorted."""
        with self._lock:
            here = {name for name, place in self._places.items() if place.stream is not None}
            return sorted(here | self._stored)

    def __contains__(self, name: object) -> bool:
        with self._lock:
            place = self._places.get(name)  # type: ignore[call-overload]
            return name in self._stored or (place is not None and place.stream is not None)

    def __len__(self) -> int:
        with self._lock:
            here = (name for name, place in self._places.items() if place.stream is not None)
            return len(self._stored) + sum(name not in self._stored for name in here)

    @property
    def in_memory(self) -> int:
        """How many states are in memory at present."""
        with self._lock:
            return sum(place.stream is not None for place in self._places.values())

    # --- the end ---------------------------------------------------------------------------------

    def save(self) -> None:
        """Write every state that changed since it was last written."""
        with self._lock:
            places = list(self._places.values())
        for place in places:
            with place.lock:
                if place.stream is not None:
                    self._save(place.stream)

    def close(self) -> None:
        """Save all streams, and let others have the folder. Called twice, it does nothing more.

        Batches that are under way in other threads are waited for, and are saved too. If a state cannot be
        written, nothing is closed.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            if self._temporary is None:
                self.save()
            else:
                self._wait_for_all()
        except BaseException:
            self._closed = False
            raise
        self.store.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Streams:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- places ----------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("these streams were closed. Make new ones on the same folder.")

    def _wait_for_all(self) -> None:
        with self._lock:
            places = list(self._places.values())
        for place in places:
            with place.lock:
                pass

    @contextmanager
    def _known(self, name: str) -> Iterator[Stream]:
        """The same as `held`, for a stream that must be there."""
        check_name(name)
        if name not in self:
            raise ValueError(
                f"a stream begins with its first batch; there is none called {name!r}. See names()."
            )
        with self.held(name) as stream:
            yield stream

    def _taken(self, name: str) -> _Place:
        """The place of a stream, which stays for as long as anyone uses it."""
        with self._lock:
            self._require_open()
            place = self._places.setdefault(name, _Place())
            self._places.move_to_end(name)
            place.users += 1
            return place

    def _given_back(self, name: str, place: _Place) -> None:
        with self._lock:
            place.users -= 1
            if place.users == 0 and place.stream is None:
                self._places.pop(name, None)

    def _opened(self, name: str) -> Stream:
        with self._lock:
            session = self.adapter.session()
        stream = Stream(name, session, self.network, self.store)
        found = self.store.read(name)
        if found is not None:
            stream.restore(found)
        return stream

    def _make_room(self) -> None:
        """Put the least recently used states away, while there are too many."""
        while (found := self._surplus()) is not None:
            name, place = found
            try:
                with place.lock:
                    if place.stream is not None:
                        self._save(place.stream)
                        place.stream = None
            except OSError as error:
                warnings.warn(
                    f"stream {name!r} stays in memory, for its state cannot be written ({error}). Make room "
                    f"in {self.store.folder}.",
                    AdaptationWarning,
                    stacklevel=3,
                )
                return
            finally:
                place.leaving = False
                self._given_back(name, place)

    def _surplus(self) -> tuple[str, _Place] | None:
        """The stream to put away next, taken; None if there is room, or all of them are at work."""
        with self._lock:
            here = [
                (name, place)
                for name, place in self._places.items()
                if place.stream is not None and not place.leaving
            ]
            if self._closed or len(here) <= self.resident:  # what is closed was saved
                return None
            for name, place in here:
                if place.users == 0:
                    place.users += 1
                    place.leaving = True
                    return name, place
            return None

    def _save(self, stream: Stream) -> None:
        stream.save()
        if stream.is_stored:
            with self._lock:
                self._stored.add(stream.name)


def network_digest(adapter: Adapter) -> str:
    """Names the network and the method that states belong to: every tensor of the model counts."""
    model = adapter.model
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    parts = [type(adapter.settings.method).__name__]
    for name, tensor in sorted(tensors.items()):
        plain = tensor.detach().cpu().contiguous()
        parts += [name, str(plain.dtype), str(tuple(plain.shape))]
        parts.append(digest_of(plain.reshape(-1).view(torch.uint8).numpy()))
    return digest_of(*parts)
