"""Is one method better than another, or is it chance? A paired bootstrap over images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fenchel.bench.record import Record

Wrong = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Difference:
    """Error of a method minus error of a reference, in percent; negative means the method is better.

    Attributes:
        estimate: the difference on the given images.
        low, high: the percentile interval of the bootstrap.
        p_value: two-sided, for a true difference of zero; at least 2 / (resamples + 1).
        images: the number of images that resamples are drawn from.
    """

    estimate: float
    low: float
    high: float
    p_value: float
    images: int

    @property
    def interval(self) -> str:
        """`-1.20 [-1.50, -0.90]`."""
        return f"{self.estimate:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def paired_bootstrap(
    wrong: Wrong,
    reference: Wrong,
    *,
    resamples: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Difference:
    """Draw images with replacement, both methods on the same ones, and measure how the difference varies.

    wrong, reference: bool (images,), or (conditions, images) where the same images were seen under
    several conditions (corruptions, seeds). An image is then drawn with all of its conditions, since
    its errors under them are not independent.

    The mean of a resample depends on how often each *distinct* per-image difference is drawn, and
    those counts are multinomial: there are at most 2 x conditions + 1 of them, so that no resample
    is ever written out.

    >>> better, worse = np.zeros(1000, bool), np.arange(1000) < 50
    >>> paired_bootstrap(better, worse).estimate
    -5.0
    """
    if wrong.shape != reference.shape or wrong.ndim not in (1, 2) or wrong.size == 0:
        raise ValueError(
            "a paired bootstrap needs two masks of one shape, (images,) or (conditions, images); got "
            f"{wrong.shape} and {reference.shape}. Compare runs over the same images."
        )
    if resamples < 1 or not 0 < confidence < 1:
        raise ValueError(
            "a bootstrap needs at least 1 resample and a confidence in (0, 1); got "
            f"{resamples} and {confidence}."
        )
    conditions, images = np.atleast_2d(wrong).shape
    per_image = np.atleast_2d(wrong).sum(0, dtype=np.int64)
    per_image -= np.atleast_2d(reference).sum(0, dtype=np.int64)
    values, counts = np.unique(per_image, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(images, counts / images, size=resamples)
    totals = drawn @ values
    scale = 100 / (images * conditions)
    tail = (1 - confidence) / 2
    low, high = np.quantile(totals * scale, [tail, 1 - tail])
    at_most, at_least = (int((totals <= 0).sum()) + 1, int((totals >= 0).sum()) + 1)
    return Difference(
        estimate=float(per_image.sum() * scale),
        low=float(low),
        high=float(high),
        p_value=min(1.0, 2 * min(at_most, at_least) / (resamples + 1)),
        images=images,
    )


Masks = dict[tuple[str, int], npt.NDArray[np.bool_]]

"""Masks by (shift, seed): which images were predicted wrongly, in the order of the data set."""


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
