"""Ranks that read batches together, run by test_ranks.py.

    python shared_reading.py SIZE FOLDER

They are forked where that can be done, after what takes longest: the imports. They meet piles with damaged
images in all kinds of places. The first one cuts each pile by itself, too.
"""

from __future__ import annotations

import os
import random
import sys
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch.distributed as dist

from fenchel.adapters.group import Group
from fenchel.predict.images import ImageFiles
from fenchel.predict.reading import first_usable, in_batches, of_shape, read_ahead
from fenchel.predict.sharing import SharedReading

PILES = 60


def pile(number: int) -> tuple[ImageFiles, list[int], int]:
    """Images that show their index, some damaged; which were decoded so far; and the size of a batch."""
    draw = random.Random(number)
    count, share = draw.randint(1, 40), draw.choice([0.0, 0.1, 0.5, 0.9])
    bad = {index: draw.random() < share for index in range(count)}
    bad[draw.randrange(count)] = False  # one at least can be used
    decoded: list[int] = []

    def read(index: int) -> npt.NDArray[Any]:
        decoded.append(index)
        if bad[index]:
            raise ValueError(f"image {index} is damaged")
        return np.full((1, 2, 2), index, np.float32)

    images = ImageFiles([str(index) for index in range(count)], read)
    return images, decoded, draw.randint(1, 9)


def check(number: int, group: Group) -> None:
    images, decoded, size = pile(number)
    order = images.order(shuffle=True, seed=number).tolist()
    first = first_usable(images, order)
    assert first.values is not None
    decoded.clear()
    ours = list(SharedReading(group, images, order, first, size).batches())
    told = group.objects(
        [[(p.index, p.problem, p.values is not None) for p in batch.pictures] for batch in ours]
    )
    once = sum(len(set(each)) for each in group.objects(decoded))
    if group.rank:
        return
    expected = list(in_batches(of_shape(first.values.shape, read_ahead(images, order)), size))
    assert len(ours) == len(expected)
    for place, whole in enumerate(expected):
        owners = []
        for row, picture in enumerate(whole.pictures):
            seen = [rank[place][row] for rank in told]
            assert {(index, problem) for index, problem, _ in seen} == {
                (picture.index, picture.problem)
            }
            owners += [rank for rank, (_, _, has_values) in enumerate(seen) if has_values]
        assert owners == sorted(owners), "shares follow each other in the order of the ranks"
        assert len(owners) == len(whole.usable), "every usable image has one owner"
    mine = [
        float(p.values.mean()) for batch in ours for p in batch.pictures if p.values is not None
    ]
    assert mine == [p.index for batch in ours for p in batch.pictures if p.values is not None]
    if len(expected) > 3 and all(not p.problem for batch in expected for p in batch.pictures):
        assert once <= len(order) + 2 * size, "most images are decoded by one rank alone"


def read_as(rank: int, size: int, folder: Path) -> None:
    store = f"file://{(folder / 'store').absolute()}"
    dist.init_process_group("gloo", store, timedelta(minutes=5), world_size=size, rank=rank)
    group = Group.of(dist.group.WORLD)
    assert group is not None
    for number in range(PILES):
        check(number, group)
    dist.destroy_process_group()


def main(size: int, folder: Path) -> int:
    """Whether a rank failed."""
    context = get_context("fork" if hasattr(os, "fork") else "spawn")
    ranks = [context.Process(target=read_as, args=(rank, size, folder)) for rank in range(size)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return int(any(rank.exitcode for rank in ranks))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
