"""The peak memory of a block of code."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import torch

from fenchel.performance import return_freed_memory

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


class PeakMemory:
    """`peak` in bytes after the block: that of the device on a GPU, else that of the whole process.

    Linux can start a new maximum for every block; elsewhere the maximum is that of the process since
    its start. None where the system does not tell.
    """

    def __init__(self, device: str) -> None:
        self._on_cuda = torch.device(device).type == "cuda"
        self._device = device
        self.peak: int | None = None

    def __enter__(self) -> PeakMemory:
        if self._on_cuda:
            torch.cuda.reset_peak_memory_stats(self._device)
        elif _CLEAR.exists():
            # A sandbox may forbid it: the maximum is then that of the process.
            return_freed_memory()  # else what earlier work held would count
            with suppress(OSError):
                _CLEAR.write_text("5")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._on_cuda:
            self.peak = torch.cuda.max_memory_allocated(self._device)
        else:
            self.peak = _process_peak()


def _process_peak() -> int | None:
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
