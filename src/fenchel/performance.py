"""What a process can do to run faster. Nothing happens unless it is called."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from dataclasses import dataclass

# The numbers of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def is_glibc() -> bool:
    """Whether this process allocates through glibc (Linux, and not musl)."""
    return sys.platform == "linux" and platform.libc_ver()[0] == "glibc"


def retain_freed_memory() -> bool:
    """Let the process keep freed memory for its next allocations; True where that is possible.

    glibc takes every block above 32 MiB from the kernel and gives it back as soon as it is freed, so that
    each large activation of each batch is page-faulted in again (`benchmarks/step.py --retain` shows what
    that costs). After this call such blocks come from the heap, and the heap does not shrink.
    The process then holds on to its peak memory until it ends. Call it once, early; Linux with
    glibc only (elsewhere nothing happens and the answer is False).
    """
    if not is_glibc():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, -1))


def return_freed_memory() -> None:
    """Give the kernel back, once, what the process kept; where nothing was kept, nothing happens."""
    if is_glibc():
        ctypes.CDLL(None).malloc_trim(0)


@dataclass(frozen=True)
class Advice:
    """One fact about this machine or process, and what to do about it (nothing, if empty)."""

    topic: str
    fact: str
    advice: str = ""


def examine() -> list[Advice]:
    """What `fenchel doctor` prints: facts that decide the speed of a step, with advice."""
    return [_devices(), _threads(), _memory_format(), _allocator(), _compiler()]


def _devices() -> Advice:
    import torch

    found = ["cpu"]
    if torch.cuda.is_available():
        found += [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append("mps")
    advice = "" if len(found) > 1 else "No GPU found: thin networks and small batches suit the CPU."
    return Advice("devices", ", ".join(found), advice)


def _threads() -> Advice:
    import torch

    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    threads = torch.get_num_threads()
    advice = ""
    if threads > cores:
        advice = f"More threads than cores slow the step: set OMP_NUM_THREADS={cores} or fewer."
    elif threads < cores:
        advice = "One stream may use all cores: torch.set_num_threads(...), or run several streams."
    return Advice("threads", f"{threads} torch threads on {cores} cores", advice)


def _memory_format() -> Advice:
    return Advice(
        "memory format",
        "large batches of images are put into channels-last memory by the adapter",
        "Keep the model there too: model.to(memory_format=torch.channels_last). "
        "channels_last=False turns it off.",
    )


def _allocator() -> Advice:
    if not is_glibc():
        return Advice("allocator", "not glibc: nothing to gain from retain_freed_memory()")
    return Advice(
        "allocator",
        "glibc returns every freed block above 32 MiB to the kernel",
        "Call fenchel.performance.retain_freed_memory() once at start: large activations are then not "
        "page-faulted in again at each batch. The process keeps its peak memory.",
    )


def _compiler() -> Advice:
    import torch

    return Advice(
        "torch.compile",
        f"torch {torch.__version__}",
        "compile=True may pay on long streams; its first batch takes a minute or more on a CPU.",
    )
