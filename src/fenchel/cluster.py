"""Ray, for whoever computes on a cluster: one that is there already, or one started on this machine."""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

CONNECTING_SECONDS = 10.0


@dataclass(frozen=True)
class Cluster:
    """A connection to Ray. `leave` ends what this process started, and nothing else."""

    ray: Any
    """The package itself."""
    owned: bool
    """Whether this process made the connection."""
    was_there: bool
    """Whether the cluster is older than the connection."""

    @staticmethod
    def joined(address: str | None, *, cpus: int, wanted_by: str = "the ray executor") -> Cluster:
        """The cluster at `address`, the one that this process has joined already, or a new one here."""
        ray = imported(wanted_by)
        if ray.is_initialized():
            return Cluster(ray, owned=False, was_there=True)
        if address is None:
            where: dict[str, Any] = {"address": "local", "num_cpus": cpus}
            with _for_this_machine_alone():
                _begun(ray, {**where, "include_dashboard": False})
        else:
            _check_reachable(address)
            _begun(ray, {"address": address})
        return Cluster(ray, owned=True, was_there=address is not None)

    @property
    def cpus(self) -> int:
        """How many processors the cluster has."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def leave(self) -> None:
        """Let go of the cluster; one that was started here ends."""
        if self.owned:
            self.ray.shutdown()


@contextmanager
def _for_this_machine_alone() -> Iterator[None]:
    """In the block, a cluster that is started is shut to others: whoever reaches Ray's ports may run code.

    It listens at the loopback device, as Ray has it on macOS and Windows by itself. Other users of this
    machine need a token that only this process and its children know; one of your own is taken as it is.
    """
    from ray._private import ray_constants

    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    before = getattr(ray_constants, "ENABLE_RAY_CLUSTER", True)
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _begun(ray: Any, where: dict[str, Any]) -> None:
    """Start or join Ray."""
    try:
        ray.init(**where, log_to_driver=False, logging_level="ERROR")
    except (
        Exception
    ) as error:  # the plainest kind is what Ray raises where a busy machine is too slow
        ray.shutdown()
        told = str(error).strip().partition("\n")[0]
        raise ConnectionError(
            f"Ray must start, or be joined, within its time; it said: {told} Try again when the machine is "
            "less busy."
        ) from error


def imported(wanted_by: str = "the ray executor", extra: str = "ray") -> Any:
    """The package, or what to install."""
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            f"{wanted_by} needs Ray, which is not installed. Run: pip install 'fenchel[{extra}]'"
        ) from error
    return ray


def _check_reachable(address: str) -> None:
    """Refuse an address at which nothing listens; Ray itself would try for minutes."""
    place = re.fullmatch(r"(?:ray://)?([^:/]+):(\d+)", address)
    if place is None:
        return  # "auto" and the like
    try:
        socket.create_connection((place[1], int(place[2])), CONNECTING_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(
            f"a Ray cluster must listen at its address; nobody answers at {address!r} ({error}). Start one "
            "with 'ray start --head', or leave --ray-address out to start Ray here."
        ) from error
