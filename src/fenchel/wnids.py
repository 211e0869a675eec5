"""The classes of ImageNet in label order: what its data sets and its networks agree on."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def wnids() -> tuple[str, ...]:
    """The 1,000 WordNet ids of the classes, in label order.

    >>> len(wnids()), wnids()[0]
    (1000, 'n01440764')
    """
    return tuple(files("fenchel").joinpath("imagenet_wnids.txt").read_text("ascii").split())
