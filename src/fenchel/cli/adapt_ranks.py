"""`fenchel adapt` under torchrun: processes that share one stream. The first of them writes and speaks."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from fenchel.cli.console import EXIT_FAILURES, err, out, report_mistake

if TYPE_CHECKING:
    from fenchel.adapters.group import Group
    from fenchel.predict.interruption import Interruption


def launched() -> bool:
    """Whether torchrun started several processes, of which this is one."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def ended_at_once() -> Iterator[None]:
    """Under torchrun, end the process behind the block without taking the interpreter down.

    A thread of gloo may still hold a tensor of the last message. It needs the interpreter to let go of it,
    and finding it gone it aborts the process, whose files are complete.
    """
    if not launched():
        yield
        return
    code: object = 0
    try:
        yield
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def own_device(device: str) -> str:
    """The device of this process: every rank of a machine has a GPU of its own."""
    if device != "cuda" or not launched():
        return device
    return f"cuda:{os.environ['LOCAL_RANK']}"


def require_one_stream(*, several: bool) -> None:
    """Refuse several streams under torchrun, whose processes share one."""
    if several and launched():
        raise ValueError(
            "torchrun's processes share one stream; got --shards or --by-folder, which make several. Leave "
            "them out, or run several streams on --executor ray without torchrun."
        )


@contextmanager
def joined_ranks(device: str) -> Iterator[Group | None]:
    """In the block, the processes that torchrun started, this one included; None for one by itself.

    What goes wrong on any rank is told by that rank, and everything else by the first alone.
    """
    if not launched():
        yield None
        return
    import torch
    import torch.distributed as dist

    from fenchel.adapters.group import Group

    on_gpu = device.startswith("cuda")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    group = Group.of(dist.group.WORLD)
    assert group is not None
    out.quiet = err.quiet = group.rank > 0
    try:
        yield group
    except ConnectionError as error:
        err.quiet = False
        report_mistake(f"{error} The same command with --resume goes on from the last saved batch.")
        raise typer.Exit(EXIT_FAILURES) from error
    except Exception as error:
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (f"rank {group.rank}: {error.args[0]}",)
        raise
    finally:
        out.quiet = err.quiet = False
        dist.destroy_process_group()


def heard_by_all(group: Group | None, interruption: Interruption) -> Callable[[], bool]:
    """Whether the run should end: a signal to any rank ends it on all of them, after the same batch."""

    def stop() -> bool:
        if group is None:
            return bool(interruption)
        ends = group.any(bool(interruption))
        if ends:
            interruption.signal = interruption.signal or signal.SIGTERM
        return ends  # what came after all were asked is heard after the next batch

    return stop
