"""The orders in which a stream presents its samples; each a function of labels and seed alone.

Only raw bits of the generator are used for shuffling, since NumPy promises those, and not its
`permutation`, to stay the same from version to version.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fenchel.data.base import Indices, Labels
from fenchel.names import Registry

Order = Callable[[Labels, int, float], Indices]
ORDERS: Registry[Order] = Registry("order")


def random_keys(seed: int, purpose: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """`count` random 64-bit numbers; sorting by them shuffles."""
    if seed < 0:
        raise ValueError(f"a seed must not be negative; got {seed}.")
    return np.random.PCG64(np.random.SeedSequence((seed, purpose))).random_raw(count)


def shuffle(seed: int, count: int) -> Indices:
    """A permutation of 0 .. count - 1.

    >>> shuffle(0, 5).tolist() == shuffle(0, 5).tolist()
    True
    """
    return np.argsort(random_keys(seed, 0, count), kind="stable")


@ORDERS.register("shuffled")
def shuffled(labels: Labels, seed: int, concentration: float) -> Indices:
    """Independent and identically distributed: a random permutation."""
    return shuffle(seed, len(labels))


@ORDERS.register("stored")
def stored(labels: Labels, seed: int, concentration: float) -> Indices:
    """As the data set lists them."""
    return np.arange(len(labels))


@ORDERS.register("sorted")
def sorted_by_class(labels: Labels, seed: int, concentration: float) -> Indices:
    """One class after the other, at random within a class."""
    return np.lexsort((random_keys(seed, 0, len(labels)), labels))


@ORDERS.register("dirichlet")
def dirichlet(labels: Labels, seed: int, concentration: float) -> Indices:
    """Correlated labels: each class spreads over as many slots as there are classes, unevenly.

    A class sends its samples to the slots in proportions drawn from a Dirichlet distribution: a
    small `concentration` puts a class into one slot or two, a large one into all alike. Slots follow
    one another; within a slot, which several classes may share, the order is random.
    """
    if not concentration > 0:
        raise ValueError(f"the concentration must be positive; got {concentration}.")
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, 1))))
    keys = random_keys(seed, 0, len(labels))
    present = np.unique(labels)
    slot = np.empty(len(labels), np.int64)
    for label in present:
        members = np.flatnonzero(labels == label)
        members = members[np.argsort(keys[members], kind="stable")]
        shares = random.dirichlet(np.full(len(present), concentration))
        ends = np.rint(np.cumsum(shares) * len(members))
        slot[members] = np.searchsorted(ends, np.arange(len(members)), side="right")
    return np.lexsort((keys, slot))


def spread(labels: Labels, count: int) -> list[int]:
    """Images of as many classes as `count` allows, evenly spaced; then second ones, and so on."""
    rank = np.zeros(len(labels), np.int64)
    seen: dict[int, int] = {}
    for position, label in enumerate(labels.tolist()):
        rank[position] = seen[label] = seen.get(label, -1) + 1
    order = np.lexsort((labels, rank))
    classes = len(seen)
    if count < classes:
        order = order[np.linspace(0, classes - 1, count).round().astype(int)]
    return [int(index) for index in order[:count]]
