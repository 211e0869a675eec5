"""Which images two ways have in common, arranged for a paired bootstrap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fenchel.bench.record import Record
from fenchel.report.significance import Difference, paired_bootstrap

Masks = dict[tuple[str, int], npt.NDArray[np.bool_]]
"""By (shift, seed): which images were predicted wrongly, in the order of the data set."""


def masks_of(records: Sequence[Record]) -> Masks:
    """The masks of every shift of every record."""
    found: Masks = {}
    for record in records:
        ends = np.cumsum(record.shift_samples)[:-1]
        for shift, mask in zip(record.cell.shifts, np.split(record.is_wrong, ends), strict=True):
            found[shift.title, record.cell.seed] = mask
    return found


def by_image(masks: Masks, limited: bool) -> npt.NDArray[np.bool_]:
    """(conditions, images): shifts and seeds over the same images; seeds have subsets of their own."""
    if len({len(mask) for mask in masks.values()}) > 1:
        return np.concatenate(list(masks.values()))
    if not limited:
        return np.stack(list(masks.values()))
    seeds = sorted({seed for _, seed in masks})
    by_seed = [np.stack([masks[key] for key in masks if key[1] == seed]) for seed in seeds]
    if len({part.shape for part in by_seed}) > 1:
        return np.concatenate(list(masks.values()))
    return np.concatenate(by_seed, axis=1)


def compare_records(
    ours: Sequence[Record], theirs: Sequence[Record], *, limited: bool
) -> Difference | None:
    """The difference over the streams that both have finished; None if there is none.

    limited: whether each seed has a random subset of the images, instead of all of them.
    """
    first, second = masks_of(ours), masks_of(theirs)
    common = [key for key in first if key in second]
    if not common:
        return None
    wrong, reference = (by_image({key: m[key] for key in common}, limited) for m in (first, second))
    return paired_bootstrap(wrong, reference)
