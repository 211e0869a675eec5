"""`fenchel adapt` on several streams: which ones there are, where they run, and what is told of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fenchel.cli.adapting import StreamCall, StreamResult, adapt_stream
from fenchel.cli.console import out, output_for_answers_alone, print_table
from fenchel.names import unknown

if TYPE_CHECKING:
    from fenchel.predict.shares import Share

EXECUTORS = ("serial", "ray")


def shares_asked_for(
    images: Path,
    shards: int | None,
    by_folder: bool,
    executor: str,
    at_once: int | None,
    ray_address: str | None,
) -> list[Share]:
    """The streams that the options ask for; none where the images are one stream."""
    from fenchel.predict.shares import equal_shares, share_per_folder

    if executor not in EXECUTORS:
        raise unknown("executor", executor, EXECUTORS)
    if executor != "ray" and (at_once is not None or ray_address is not None):
        given = "--at-once" if at_once is not None else "--ray-address"
        raise ValueError(f"{given} goes with --executor ray; got {executor!r}. Add it.")
    if shards is not None and by_folder:
        raise ValueError("--shards and --by-folder are two ways to make streams. Give one of them.")
    if by_folder:
        return share_per_folder(images)
    if shards is not None:
        return equal_shares(images, shards)
    if executor == "ray":
        raise ValueError(
            "one stream runs in one process: its batches follow each other. --executor ray needs several "
            "streams. Add --shards 2, or --by-folder."
        )
    return []


def adapt_all(
    calls: Sequence[StreamCall],
    executor: str,
    at_once: int | None,
    ray_address: str | None,
    *,
    stop: Callable[[], bool],
) -> list[StreamResult]:
    """Run every stream that there is time for; the results in the order of the streams."""
    if executor == "serial":
        results = []
        for call in calls:
            results.append(on_one_thread(call, stop))
            if stop():
                break
        return results
    from fenchel.predict.actors import run_in_actors

    with output_for_answers_alone():
        found = dict(
            run_in_actors(
                on_one_thread,
                calls,
                at_once=at_once,
                address=ray_address,
                gpus=int(calls[0].adaptation.device.startswith("cuda")),
                continued=lambda call: replace(call, resume=True),
                stop=stop,
            )
        )
    return [found[place] for place in sorted(found)]


def on_one_thread(call: StreamCall, stop: Callable[[], bool]) -> StreamResult:
    """Run a stream on one torch thread, here as in any actor: so its bits do not depend on where it runs."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return adapt_stream(call, stop)
    finally:
        torch.set_num_threads(before)


def tell_all(results: Sequence[StreamResult]) -> None:
    """One row per stream, and what to do about those that look harmful."""
    from rich.table import Table

    table = Table("predictions", "images", "updates", "verdict")
    for result in results:
        told = result.entries
        row = (told["predictions"], told["images"], told["updates"], told["verdict"])
        table.add_row(*map(str, row))
    print_table(table)
    for result in results:
        if result.summary.harmful:
            told = result.entries
            said = f"{told['predictions']}: {told['sentence']} {told['advice']}"
            out.print(said, style="bold red", highlight=False, soft_wrap=True)
