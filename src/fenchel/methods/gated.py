"""What methods that adapt on reliable samples alone share: gates, weights, and the mean prediction.

All of them are functions of the softmax entropy in nats and of the predicted probabilities, whatever the
training loss is. Nothing here has a gradient.
"""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.passes import LossFunction, Passes
from fenchel.adapters.state import State, Tensors
from fenchel.methods.inside import EntropyMethod, probabilities, softmax_entropy


def largest_entropy(logits: Tensor) -> float:
    """ln C, the entropy of the uniform prediction."""
    return math.log(logits.shape[-1])


def cosine(p: Tensor, mean: Tensor) -> Tensor:
    """The cosine between every prediction and a mean prediction; 0 where there is no mean yet."""
    lengths = torch.linalg.vector_norm(p, dim=-1) * torch.linalg.vector_norm(mean)
    found: Tensor = (p * mean).sum(-1) / lengths.clamp_min(1e-8)
    return found


def scaled(values: Tensor) -> Tensor:
    """Values mapped to [0, 1] by their extremes; zeros if they are all the same."""
    low, high = values.amin(), values.amax()
    return (values - low) / torch.where(high > low, high - low, torch.ones_like(high))


def sure_and_different(different: Tensor, sure: Tensor, sharpness: float) -> Tensor:
    """exp(d c / sharpness), with d and c scaled within the batch; 0 where d is below the batch's mean."""
    different = scaled(different)
    weights = (different * scaled(sure) / sharpness).exp()
    return torch.where(different < different.mean(), 0.0, weights)


def mean_of_kept(mean: Tensor, p: Tensor, kept: Tensor, momentum: float) -> Tensor:
    """The mean prediction with that of the kept samples mixed in; zeros mean that there is none yet."""
    mask = kept.unsqueeze(-1).to(p.dtype)
    axes = list(range(p.ndim - 1))
    count = mask.sum()
    latest = (p * mask).sum(axes) / count.clamp_min(1)
    mixed = torch.where(mean.sum() > 0, momentum * mean + (1 - momentum) * latest, latest)
    return torch.where(count > 0, mixed, mean)


@dataclass(frozen=True, kw_only=True)
class ReliableAndNew(EntropyMethod, ABC):
    """Adapts on samples that are reliable (low entropy) and new (unlike the mean prediction).

    Kept are samples with H < E0 and |cos(p, mean)| < similarity, where E0 = margin ln C; each counts
    exp(E0 - H). The mean prediction of the kept samples is an exponential average.
    """

    shares_batches: ClassVar[bool] = True

    margin: float = 0.4
    similarity: float = 0.4
    momentum: float = 0.9

    def __post_init__(self) -> None:
        for name, low in (("margin", 0.0), ("similarity", 0.0), ("momentum", 0.0)):
            value = getattr(self, name)
            if not low <= value <= 1:
                raise ValueError(f"{type(self).__name__} needs 0 <= {name} <= 1; got {value!r}.")

    def first_memory(self, logits: Tensor) -> Tensors:
        return {"mean_prediction": probabilities(logits).new_zeros(logits.shape[-1])}

    def update(self, passes: Passes, state: State, batch: Inputs) -> State:
        mean = state.memory["mean_prediction"]
        seen: list[Tensor] = []

        def loss(theta: Tensors) -> tuple[Tensor, Tensor]:
            logits = passes.logits(theta, batch)
            seen[:] = [logits.detach()]
            return passes.mean(self.term(logits), self.weights(logits, mean))

        after = passes.descend(state, self.regularised(loss, passes, state))
        cool = self.cooled(seen[0])
        latest = mean_of_kept(mean, probabilities(cool), self.keeps(cool, mean), self.momentum)
        return replace(after, memory={**after.memory, "mean_prediction": latest})

    def regularised(self, loss: LossFunction, passes: Passes, state: State) -> LossFunction:
        """The loss with whatever else pulls at the parameters; here nothing does."""
        return loss

    def keeps(self, cool: Tensor, mean: Tensor) -> Tensor:
        """Which samples are reliable and new, by logits that are already divided by the temperature."""
        reliable = softmax_entropy(cool) < self.margin * largest_entropy(cool)
        return reliable & (cosine(probabilities(cool), mean).abs() < self.similarity)

    @torch.no_grad()
    def weights(self, logits: Tensor, mean: Tensor) -> Tensor:
        """How much every sample counts: 0 unless it is kept."""
        cool = self.cooled(logits)
        excess = self.margin * largest_entropy(cool) - softmax_entropy(cool)
        return self.weighted(logits, torch.where(self.keeps(cool, mean), excess.exp(), 0.0))
