"""Who holds a claim on a cell, and whether that driver is known to be dead.

A driver that was killed cannot give its claims back. On another machine that shows when they run out;
on this one it shows at once: its process is gone, or its number belongs to a younger process.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from pathlib import Path
from types import TracebackType

from fenchel.bench.store import Store

LEASE_SECONDS = 120.0
RENEWALS_A_LEASE = 6


def new_owner() -> str:
    """A name for this driver: machine, process, its start, and something unique."""
    start = _start_of(os.getpid())
    return "|".join((_machine(), str(os.getpid()), start, uuid.uuid4().hex[:8]))


def is_dead(owner: str) -> bool:
    """Whether the driver of that name certainly no longer runs."""
    machine, process, start, _ = owner.split("|")
    if machine != _machine() or os.name != "posix":
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # the process belongs to another user, so it is alive
    return _start_of(int(process)) != start


def release_the_dead(store: Store) -> None:
    """End the claims of drivers that died on this machine."""
    for owner in store.owners():
        if is_dead(owner):
            store.release(owner)


def _machine() -> str:
    """This boot of this machine, and the space in which its process numbers count."""
    parts = [socket.gethostname()]
    boot = Path("/proc/sys/kernel/random/boot_id")
    space = Path("/proc/self/ns/pid")
    if boot.exists():
        parts.append(boot.read_text().strip())
    if space.is_symlink():
        parts.append(os.readlink(space))
    return " ".join(parts).replace("|", " ")


def _start_of(process: int) -> str:
    """When a process began, in ticks since the boot; empty where the system does not say."""
    try:
        facts = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return ""
    after_name = facts.rpartition(")")[2].split()
    is_zombie = after_name[0] == "Z"
    return "" if is_zombie else after_name[19]


class Heartbeat:
    """Renews the claims of a driver for as long as the block runs, however long a cell takes."""

    def __init__(self, path: Path, owner: str, lease_seconds: float) -> None:
        self._path, self._owner, self._lease = path, owner, lease_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _beat(self) -> None:
        with Store(self._path) as store:
            while not self._stop.wait(self._lease / RENEWALS_A_LEASE):
                try:
                    store.renew(self._owner, self._lease)
                except OSError:
                    continue  # a busy or full disk: the next beat may succeed, the lease is long
