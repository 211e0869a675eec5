"""Streams side by side on Ray: one stateful actor per stream, which meets all of its batches in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from fenchel.cluster import Cluster

ATTEMPTS = 5
"""A stream has failed once this many actors died at it."""
_ASKING_SECONDS = 0.5

Item = TypeVar("Item")
Result = TypeVar("Result")
Task = Callable[[Item, Callable[[], bool]], Result]
"""Runs one stream; the function that it is given tells whether it should end after the batch at hand."""


class StreamActor(Generic[Item, Result]):
    """The actor. One thread of it runs a stream, the other one listens meanwhile whether it should stop."""

    def __init__(self, folder: str) -> None:
        """`folder`: what relative paths of the stream are relative to."""
        os.chdir(folder)
        self._stopped = False

    def run(self, task: Task[Item, Result], item: Item) -> Result:
        """Run the stream to its end."""
        return task(item, lambda: self._stopped)

    def stop(self) -> None:
        """End after the batch at hand."""
        self._stopped = True


def run_in_actors(
    task: Task[Item, Result],
    items: Sequence[Item],
    *,
    at_once: int | None = None,
    address: str | None = None,
    gpus: int = 0,
    continued: Callable[[Item], Item],
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[int, Result]]:
    """The results of all streams by their places, as they end.

    Args:
        task: what runs one stream.
        items: what is told to each; it must pickle.
        at_once: actors that run side by side; by default as many as the cluster has processors.
        address: of a Ray cluster; by default Ray is started here.
        gpus: that each actor needs.
        continued: the item with which a stream goes on in another actor when its own has died.
        stop: asked now and then; when it is true, streams under way are told to end, and no more begin.
    """
    cluster = Cluster.joined(address, cpus=at_once or 1)
    try:
        actor = cluster.ray.remote(num_cpus=1, num_gpus=gpus, max_concurrency=2)(StreamActor)
        limit = at_once or cluster.cpus
        yield from _Crew(cluster.ray, actor, task, list(items), limit, continued).results(stop)
    finally:
        cluster.leave()


class _Crew(Generic[Item, Result]):
    """The actors at work."""

    def __init__(
        self,
        ray: Any,
        actor: Any,
        task: Task[Item, Result],
        items: list[Item],
        limit: int,
        continued: Callable[[Item], Item],
    ) -> None:
        self._ray, self._actor = ray, actor
        self._task, self._items = task, items
        self._limit, self._continued = limit, continued
        self._waiting = list(range(len(items)))
        self._deaths = [0] * len(items)
        self._at_work: dict[Any, tuple[int, Any]] = {}

    def results(self, stop: Callable[[], bool]) -> Iterator[tuple[int, Result]]:
        told = False
        while self._waiting or self._at_work:
            if stop() and not told:
                told = True
                self._waiting.clear()
                for _, actor in self._at_work.values():
                    actor.stop.remote()
            while self._waiting and len(self._at_work) < self._limit:
                self._begin(self._waiting.pop(0))
            if not self._at_work:
                return
            ready, _ = self._ray.wait(list(self._at_work), timeout=_ASKING_SECONDS)
            for reference in ready:
                found = self._ended(reference)
                if found is not None:
                    yield found

    def _begin(self, place: int) -> None:
        actor = self._actor.remote(os.getcwd())
        self._at_work[actor.run.remote(self._task, self._items[place])] = (place, actor)

    def _ended(self, reference: Any) -> tuple[int, Result] | None:
        place, actor = self._at_work.pop(reference)
        try:
            return place, self._ray.get(reference)
        except self._ray.exceptions.RayActorError as error:
            if error.actor_init_failed:
                last = str(error).strip().splitlines()[-1].strip()
                raise OSError(
                    f"an actor must find fenchel and the folder {os.getcwd()} where it runs; it said: "
                    f"{last}. Install the same version there, and share the folder."
                ) from error
            self._deaths[place] += 1
            if self._deaths[place] == ATTEMPTS:
                raise OSError(
                    f"the actor of a stream must live until it is done; {ATTEMPTS} died at the same one, "
                    "perhaps for want of memory. The same command with resume=True continues."
                ) from None
            self._items[place] = self._continued(self._items[place])
            self._waiting.insert(0, place)
            return None
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error  # the user's own mistake, as it would be told here
        finally:
            self._ray.kill(actor)
