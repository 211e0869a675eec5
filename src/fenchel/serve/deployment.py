"""The service on Ray Serve: one ingress that speaks HTTP, and one deployment per share of the streams.

Ray Serve chooses among the replicas of a deployment as it likes, and a stream must never be in two
processes at once. So every share of the streams is a deployment with exactly one replica. When it dies,
Ray Serve starts it again, and the streams go on from the store; meanwhile their requests wait.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any

import numpy.typing as npt

from fenchel.cluster import Cluster, imported
from fenchel.files import locked
from fenchel.serve.limits import Refused
from fenchel.serve.reading import Images
from fenchel.serve.service import Service

APPLICATION = "fenchel"
OVERVIEW_SECONDS = 2.0
_RETRY_SECONDS = 0.2
_MOST_DEATHS = 3
"""A request at which so many processes died is not sent again: it may be what kills them."""

Reply = tuple[int, Any]
"""The status of HTTP, and the answer or, if that is an error, one line. Refusals are no failures of Ray."""


class Replica:
    """One share of the streams, in a process of its own."""

    def __init__(self, service: Service, number: int) -> None:
        self.engine = service.engine(number)

    async def predict(
        self, name: str, key: str, names: tuple[str, ...], values: npt.NDArray[Any]
    ) -> Reply:
        """See `Engine.submit`."""
        try:
            future = self.engine.submit(name, key, Images(names, values))
            return 200, await asyncio.wrap_future(future)
        except Refused as refused:
            return refused.status, refused.message

    async def describe(self, name: str) -> Reply:
        """See `Engine.describe`."""
        return await _replied(self.engine.describe, name)

    async def reset(self, name: str, key: str) -> Reply:
        """See `Engine.reset`."""
        return await _replied(self.engine.reset, name, key)

    async def overview(self, shown: int, course: bool) -> Reply:
        """See `Engine.overview`."""
        return 200, self.engine.overview(shown, course=course)

    def __del__(self) -> None:
        if hasattr(self, "engine"):
            self.engine.close()


async def _replied(method: Any, *arguments: Any) -> Reply:
    try:
        return 200, await asyncio.to_thread(method, *arguments)
    except Refused as refused:
        return refused.status, refused.message


class RayBackend:
    """Passes requests on to the replica that has their stream, and waits while it starts again."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._handles: list[Any] | None = None

    async def predict(self, name: str, key: str, images: Images) -> dict[str, Any]:
        """See `Backend`. A request that a dying replica had under way is sent again, under the same key."""
        arguments = (name, key, images.names, images.values)
        return await self._asked(self.service.replica_of(name), "predict", *arguments)

    async def describe(self, name: str) -> dict[str, Any]:
        """See `Backend`."""
        return await self._asked(self.service.replica_of(name), "describe", name)

    async def reset(self, name: str, key: str) -> dict[str, Any]:
        """See `Backend`."""
        return await self._asked(self.service.replica_of(name), "reset", name, key)

    async def overview(self, shown: int, *, course: bool) -> list[dict[str, Any] | None]:
        """See `Backend`."""

        async def one(number: int) -> dict[str, Any] | None:
            try:
                asked = self._asked(number, "overview", shown, course)
                return await asyncio.wait_for(asked, OVERVIEW_SECONDS)
            except (asyncio.TimeoutError, Refused):
                return None

        return list(await asyncio.gather(*map(one, range(self.service.replicas))))

    async def _asked(self, number: int, method: str, *arguments: Any) -> dict[str, Any]:
        from ray import exceptions as of_ray
        from ray.serve import exceptions as of_serve

        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.service.limits.seconds
        deaths = 0
        gone = (of_ray.RayActorError, of_serve.DeploymentUnavailableError)
        while True:
            try:
                left = deadline - loop.time()
                status, answer = await asyncio.wait_for(
                    self._sent(number, method, arguments), max(0.0, left)
                )
            except gone as error:
                deaths += isinstance(error, of_ray.ActorDiedError)
                if deaths == _MOST_DEATHS:
                    raise Refused(
                        503,
                        f"the process of this stream died {deaths} times while it had the request, perhaps "
                        "for want of memory. Send fewer or smaller images.",
                    ) from None
                await asyncio.sleep(_RETRY_SECONDS)
            except of_serve.BackPressureError:
                raise Refused(503, "too many requests wait for this replica. Try again.") from None
            except asyncio.TimeoutError:
                raise Refused(
                    503,
                    f"no answer within {self.service.limits.seconds:g} seconds. Send the request again, with "
                    "the same Idempotency-Key.",
                ) from None
            else:
                if status != 200:
                    raise Refused(status, answer)
                return answer  # type: ignore[no-any-return]

    async def _sent(self, number: int, method: str, arguments: tuple[Any, ...]) -> Reply:
        reply: Reply = await getattr(self._handle(number), method).remote(*arguments)
        return reply

    def _handle(self, number: int) -> Any:
        from ray import serve

        if self._handles is None:
            self._handles = [
                serve.get_deployment_handle(_name(each), app_name=APPLICATION)
                for each in range(self.service.replicas)
            ]
        return self._handles[number]


@dataclass(frozen=True)
class Running:
    """A service that runs; `stop` ends it."""

    service: Service
    cluster: Cluster
    lock: IO[bytes]

    @property
    def url(self) -> str:
        """Where it is."""
        host = f"[{self.service.host}]" if ":" in self.service.host else self.service.host
        return f"http://{host}:{self.service.port}"

    def stop(self) -> None:
        """End the service; every state is in the store."""
        require_serve().shutdown()
        self.cluster.leave()
        self.lock.close()


def start(service: Service, *, address: str | None = None) -> Running:
    """Start the service, on the cluster at `address` or on this machine, and come back when it answers."""
    require_serve()
    try:
        lock = locked(service.store / "service.lock")
    except BlockingIOError as error:
        raise ValueError(
            f"a folder of streams belongs to one service at a time; another one has {service.store}. End it, "
            "or use another store."
        ) from error
    with ExitStack() as undone:
        undone.callback(lock.close)
        cluster = Cluster.joined(address, cpus=service.replicas, wanted_by="fenchel serve")
        undone.callback(cluster.leave)
        _run(service)
        undone.pop_all()  # all of it is there
    return Running(service, cluster, lock)


def require_serve() -> Any:
    """Ray Serve, or what to install."""
    imported("fenchel serve", extra="serve")
    try:
        from ray import serve
    except ImportError as error:
        raise ImportError(
            "fenchel serve needs Ray Serve, which is not installed whole. Run: pip install 'fenchel[serve]' "
            f"({error})"
        ) from error
    return serve


def _run(service: Service) -> None:
    serve = require_serve()
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    limits = service.limits
    # Ray's own queues are bounded as well; ours refuse first, and say why.
    bounds: dict[str, Any] = {
        "max_ongoing_requests": 2 * limits.all_waiting,
        "max_queued_requests": 2 * limits.all_waiting,
        "health_check_period_s": 1.0,
        "graceful_shutdown_timeout_s": 10.0,
    }
    gpus = int(service.adaptation.device.startswith("cuda"))
    needs = {"num_cpus": 1, "num_gpus": gpus}
    quiet = {"log_level": "WARNING", "enable_access_log": False}

    def build() -> Any:
        from fenchel.serve.app import make_app

        return make_app(
            RayBackend(service), service.reader(), token=service.token, only_here=service.is_local
        )

    replicas = [
        serve.deployment(Replica, name=_name(number), ray_actor_options=needs, **bounds).bind(
            service, number
        )
        for number in range(service.replicas)
    ]
    ingress = serve.deployment(
        serve.ingress(build)(),
        name="ingress",
        ray_actor_options={"num_cpus": 0},
        **{**bounds, "max_ongoing_requests": 1000, "max_queued_requests": 1000},
    ).bind(*replicas)
    options = {
        "host": service.host,
        "port": service.port,
        "request_timeout_s": limits.seconds + 10,
    }
    serve.start(proxy_location="HeadOnly", http_options=options, logging_config=quiet)
    serve.run(ingress, name=APPLICATION, route_prefix="/", logging_config=quiet)


def _name(number: int) -> str:
    return f"streams-{number}"
