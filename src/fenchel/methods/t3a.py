"""T3A: templates of the classes, from features that were surely theirs, replace the head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.passes import Passes
from fenchel.adapters.state import State, Tensors
from fenchel.facts import Cost, Published
from fenchel.methods.by_features import FeatureMethod, raised
from fenchel.methods.inside import softmax_entropy
from fenchel.names import register


@final
@register("t3a")
@dataclass(frozen=True, kw_only=True)
class T3A(FeatureMethod):
    """The mean direction of a class's surest features scores the class; they replace the head's weights.

    A feature belongs to the class that the head predicts of it, and is the surer the lower the softmax
    entropy of that prediction. Every class keeps its `supports` surest features; the first ones are the
    rows of the head's weights. The scores are features . normalised sum of the normalised supports.

    `memory` holds `supports` slots per class, the surest first, and how many of them are filled.
    """

    cost: ClassVar[Cost | None] = Cost(forward="1", backward="0", memory="features per class")
    paper: ClassVar[str] = (
        'Iwasawa and Matsuo, "Test-Time Classifier Adjustment Module for Model-Agnostic Domain '
        'Generalization", NeurIPS 2021'
    )
    published: ClassVar[Published] = {"cifar10": {"supports": 100}, "imagenet": {"supports": 20}}

    supports: int = 100

    def __post_init__(self) -> None:
        if self.supports < 1:
            raise ValueError(f"t3a needs at least one support per class; got {self.supports!r}.")

    def start(self, passes: Passes, batch: Inputs) -> Tensors:
        _, logits = self.seen(passes, passes.source, batch)
        weight, bias = map(raised, passes.head_weights(passes.source, batch))
        classes, width = weight.shape
        empty = {
            "supports": weight.new_zeros(classes, self.supports, width),
            "entropies": logits.new_zeros(classes, self.supports),
            "counts": torch.zeros(classes, dtype=torch.int64, device=weight.device),
        }
        return self._with(empty, weight, weight @ weight.T + bias)

    def update(self, passes: Passes, state: State, batch: Inputs) -> State:
        features, logits = self.seen(passes, state.parameters, batch)
        return replace(state, memory=self._with(state.memory, features, logits))

    def output(self, passes: Passes, state: State, batch: Inputs) -> Any:
        features, _ = self.seen(passes, state.parameters, batch)
        supports, counts = state.memory["supports"], state.memory["counts"]
        filled = torch.arange(self.supports, device=counts.device) < counts[:, None]
        templates = (normalize(supports, dim=-1) * filled[..., None]).sum(1)
        logits = features @ normalize(templates, dim=-1).to(features.dtype).T
        return self.shown(passes, state.parameters, batch, logits)

    def _with(self, memory: Tensors, features: Tensor, logits: Tensor) -> Tensors:
        """The memory after more features: the surest of each class, old and new together."""
        classes = len(memory["counts"])
        theirs = torch.arange(classes, device=logits.device)[:, None] == logits.argmax(-1)
        filled = torch.arange(self.supports, device=theirs.device) < memory["counts"][:, None]
        present = torch.cat([filled, theirs], -1)
        sure = softmax_entropy(logits).to(memory["entropies"].dtype)
        entropies = torch.cat([memory["entropies"], sure.expand(classes, -1)], -1)
        # Stable: of two that are equally sure, the one that came first.
        order = torch.where(present, entropies, torch.inf).sort(stable=True).indices
        order = order[:, : self.supports]
        kept, slots = present.gather(-1, order), order.clamp_max(self.supports - 1)
        old = memory["supports"].gather(1, slots[..., None].expand_as(memory["supports"]))
        new = features[(order - self.supports).clamp_min(0)].to(old.dtype)
        supports = torch.where((order < self.supports)[..., None], old, new)
        return {
            "supports": torch.where(kept[..., None], supports, 0.0),
            "entropies": torch.where(kept, entropies.gather(-1, order), 0.0),
            "counts": kept.sum(-1),
        }
