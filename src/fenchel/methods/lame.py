"""LAME: neighbours in a batch agree on their classes; the network stays as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.passes import Passes
from fenchel.adapters.state import State
from fenchel.facts import Cost, Published
from fenchel.methods.by_features import FeatureMethod
from fenchel.names import register

STEPS, SETTLED = 100, 1e-8
"""How often predictions are made anew at most, and the relative change of the energy that ends it."""


@final
@register("lame")
@dataclass(frozen=True, kw_only=True)
class Lame(FeatureMethod):
    """Predictions y that neighbours in the batch share: y <- softmax(log p + K y) until they settle.

    K holds the affinities of the samples, by the distances of their L2-normalised features: 1 for the
    `neighbours` nearest others and 0 for the rest (`affinity="knn"`), or exp(-d² / 2 s²) with s the mean
    distance to the last of these neighbours ("rbf"). The energy that this lowers is
    sum_i -y_i . (log p_i + (K y)_i) + y_i . log y_i. A sample by itself keeps its prediction.
    The output holds log y.
    """

    cost: ClassVar[Cost | None] = Cost(forward="1", backward="0", needs_batch=True)
    paper: ClassVar[str] = (
        'Boudiaf et al., "Parameter-free Online Test-time Adaptation", CVPR 2022, arXiv 2201.05718'
    )
    published: ClassVar[Published] = {"cifar10": {"neighbours": 5}, "imagenet": {"neighbours": 5}}

    neighbours: int = 5
    affinity: Literal["knn", "rbf"] = "knn"

    def __post_init__(self) -> None:
        if self.affinity not in ("knn", "rbf"):
            raise ValueError(f"lame needs affinity 'knn' or 'rbf'; got {self.affinity!r}.")
        if self.neighbours < 1:
            raise ValueError(f"lame needs at least one neighbour; got {self.neighbours!r}.")

    def output(self, passes: Passes, state: State, batch: Inputs) -> Any:
        features, logits = self.seen(passes, state.parameters, batch)
        settled = _settled(logits.log_softmax(-1), self._affinities(features))
        return self.shown(passes, state.parameters, batch, settled)

    def _affinities(self, features: Tensor) -> Tensor:
        directions = torch.nn.functional.normalize(features, dim=-1)
        squares = (2 - 2 * directions @ directions.T).clamp_min(0)  # of the distances
        count = min(self.neighbours, len(features) - 1)
        if count == 0:
            return torch.zeros_like(squares)
        # By a stable sort, so that equal distances leave no choice: the earlier sample is the nearer.
        others = squares.clone().fill_diagonal_(torch.inf)
        near, nearest = (found[:, :count] for found in others.sort(stable=True))
        if self.affinity == "knn":
            return torch.zeros_like(squares).scatter_(-1, nearest, 1.0)
        scale = near[:, -1].sqrt().mean().clamp_min(torch.finfo(squares.dtype).eps)
        return (-squares / (2 * scale.square())).exp()


def _settled(log_p: Tensor, affinities: Tensor) -> Tensor:
    """log y for the predictions y that neighbours agree on. The host waits to learn when to stop."""
    log_y, energy = log_p, torch.inf
    for step in range(STEPS):
        pairwise = affinities @ log_y.exp()
        log_y = (log_p + pairwise).log_softmax(-1)
        y = log_y.exp()
        before, energy = energy, float((y * (log_y - log_p - pairwise)).sum())
        if step > 1 and abs(energy - before) <= SETTLED * abs(before):
            break
    return log_y
