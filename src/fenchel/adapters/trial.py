"""Whether adapting to a stream serves the network, told by predictions of shifted images.

Statistics of the stream help under most shifts. Under some, such as blur, they make some networks worse,
while the predictions look as sure and as varied as the source's. What tells is whether a prediction holds:
the same images are predicted again, shifted by a few pixels. With p the prediction of an image, q that of
its shifted copy and H(p, q) = -sum p log q,

    confirmed information = H(mean p, mean q) - mean H(p, q)

is the mutual information of image and prediction as far as the copy confirms it. An adapter that has less
of it than the source model has failed. Statistics that follow the stream more closely serve better if
there is more of it under them than of either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.state import Tensors

FEWEST, MOST = 150, 500
"""Images after which a trial may fail, and those after which it is over."""
EARLIEST = 100
"""Images after which it may show that other statistics serve better: a mistake there costs little."""
LEAST, CHANCE = 0.95, 0.5
"""The share of the source's confirmed information that has to be left, and the nats by which chance lets it
fall short on one image; on n images, by a square root of n less."""
KNOWN = 0.05
"""Nats of confirmed information below which a model knows nothing that could be lost, or made use of."""
MORE = 1.01
"""So many times as much confirmed information shows that other statistics serve better."""
SHIFT_BY = 16
"""Images are shifted by one of so many parts of their sides."""
SMALLEST = 8
"""Images with shorter sides are not shifted."""
IMPOSSIBLE = 1e-6
"""The probability that stands for none."""


def shifted_copy(batch: Inputs) -> Inputs | None:
    """The same images, shifted down and to the right; None where the samples are no images."""
    x = batch.samples()
    if x.ndim != 4 or not x.is_floating_point() or min(x.shape[-2:]) < SMALLEST:
        return None
    down, right = (side // SHIFT_BY or 1 for side in x.shape[-2:])
    moved = pad(x, (right, 0, down, 0), mode="replicate")[..., : x.shape[-2], : x.shape[-1]]
    return batch.with_samples(moved)


@dataclass(frozen=True)
class Confirmed:
    """Sums over predictions and those of shifted copies; they add up over batches."""

    count: int
    probabilities: Tensor
    """Summed over the images, (classes,), on the host in float64; the copies' as well."""
    copies: Tensor
    crossed: float
    """H(p, q), summed over the images."""

    @staticmethod
    def of(p: Tensor, q: Tensor) -> Confirmed:
        """The sums over predictions (samples, classes) of images and of their copies."""
        p, q = p.detach().double().cpu(), q.detach().double().cpu()
        return Confirmed(len(p), p.sum(0), q.sum(0), -float((p * _log(q)).sum()))

    def __add__(self, other: Confirmed) -> Confirmed:
        return Confirmed(
            self.count + other.count,
            self.probabilities + other.probabilities,
            self.copies + other.copies,
            self.crossed + other.crossed,
        )

    @property
    def information(self) -> float:
        """The confirmed information, in nats."""
        between = -float((self.probabilities * _log(self.copies / self.count)).sum())
        return (between - self.crossed) / self.count

    def to_tensor(self) -> Tensor:
        """All numbers in one row; `from_tensor` gives the same sums back."""
        head = torch.tensor([self.count, self.crossed], dtype=torch.float64)
        return torch.cat([head, self.probabilities, self.copies])

    @staticmethod
    def from_tensor(row: Tensor) -> Confirmed:
        """The inverse of `to_tensor`."""
        row = row.double().cpu()
        probabilities, copies = row[2:].chunk(2)
        return Confirmed(int(row[0]), probabilities, copies, float(row[1]))


def _log(p: Tensor) -> Tensor:
    return p.clamp_min(IMPOSSIBLE).log()


@dataclass(frozen=True)
class Trial:
    """The adapter beside the source model, on images since the stream last changed.

    keen: the adapter under statistics that tolerate nothing, where it can have them.
    """

    adapted: Confirmed | None = None
    source: Confirmed | None = None
    keen: Confirmed | None = None

    @property
    def count(self) -> int:
        """The images so far."""
        return 0 if self.source is None else self.source.count

    @property
    def over(self) -> bool:
        """Whether enough images were seen for good."""
        return self.count >= MOST

    def after(self, adapted: Confirmed, source: Confirmed, keen: Confirmed | None = None) -> Trial:
        """The trial after some more images."""
        if self.adapted is None or self.source is None:
            return Trial(adapted, source, keen)
        both = self.keen + keen if self.keen is not None and keen is not None else None
        return Trial(self.adapted + adapted, self.source + source, both)

    @property
    def wants_keen(self) -> bool:
        """Whether statistics that tolerate nothing serve better."""
        if self.adapted is None or self.source is None or self.keen is None:
            return False
        best = max(self.adapted.information, self.source.information)
        return self.count >= EARLIEST and self.keen.information > max(MORE * best, KNOWN)

    @property
    def failure(self) -> str:
        """Why the adapter should not go on like this; empty if it may."""
        if self.adapted is None or self.source is None or self.count < FEWEST:
            return ""
        ours, theirs = self.adapted.information, self.source.information
        if ours >= LEAST * theirs - CHANCE / self.count**0.5 or theirs < KNOWN:
            return ""
        return (
            "shifted by a few pixels, the images confirm fewer of the adapter's predictions than of the "
            f"source model's: {ours:.2f} nats of information instead of {theirs:.2f}"
        )

    def to_tensors(self) -> Tensors:
        """Everything, as tensors; `from_tensors` goes on from there."""
        if self.adapted is None or self.source is None:
            return {}
        contestants = (self.adapted, self.source, *((self.keen,) if self.keen else ()))
        return {"trial": torch.stack([each.to_tensor() for each in contestants])}

    @staticmethod
    def from_tensors(saved: Mapping[str, Tensor]) -> Trial:
        """The inverse of `to_tensors`."""
        if "trial" not in saved:
            return Trial()
        return Trial(*(Confirmed.from_tensor(row) for row in saved["trial"]))
