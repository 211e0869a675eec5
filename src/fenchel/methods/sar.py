"""SAR: entropy on reliable samples, at a flat place, and a reset when the model collapses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.passes import Passes
from fenchel.adapters.state import RESTARTS, State, Tensors
from fenchel.facts import Cost, Published
from fenchel.methods.gated import largest_entropy
from fenchel.methods.inside import EntropyMethod, probabilities, softmax_entropy
from fenchel.methods.restarting import counter, restarted_where
from fenchel.names import register


@final
@register("sar")
@dataclass(frozen=True, kw_only=True)
class Sar(EntropyMethod):
    """Sharpness-aware entropy of reliable samples; a reset when the loss collapses.

    Climb to theta + rho g / |g|, g the gradient over samples with H < margin ln C; step from theta along
    the gradient there, over those of them whose entropy is below the margin there as well. An average of
    their entropies, in nats, watches for collapse: below `threshold` everything goes back to the source,
    and the average starts anew.
    """

    shares_batches: ClassVar[bool] = True
    cost: ClassVar[Cost | None] = Cost(
        forward="2", backward="2", memory="source parameters, average of the entropy"
    )
    paper: ClassVar[str] = (
        'Niu et al., "Towards Stable Test-Time Adaptation in Dynamic Wild World", ICLR 2023, '
        "arXiv 2302.12400"
    )
    defaults: ClassVar[dict[str, Any]] = {"parameters": "but-last:1"}
    published: ClassVar[Published] = {
        "imagenet": {"optimizer": "sgd", "learning_rate": 2.5e-4, "predict": "before"},
        "imagenet-vit": {
            "optimizer": "sgd",
            "learning_rate": 1e-3,
            "predict": "before",
            "parameters": ("blocks.[0-8].norm?.*",),
        },
    }

    radius: float = 0.05
    margin: float = 0.4
    threshold: float = 0.2
    momentum: float = 0.9

    def __post_init__(self) -> None:
        if not (self.radius >= 0 and 0 <= self.margin <= 1 and 0 <= self.momentum <= 1):
            raise ValueError(
                "Sar needs radius >= 0, margin and momentum between 0 and 1; got "
                f"radius={self.radius!r}, margin={self.margin!r}, momentum={self.momentum!r}."
            )

    def first_memory(self, logits: Tensor) -> Tensors:
        average = probabilities(logits).new_zeros(())
        return {"average": average, "averaged": counter(logits), RESTARTS: counter(logits)}

    def update(self, passes: Passes, state: State, batch: Inputs) -> State:
        kept: list[Tensor] = []
        entropies: list[Tensor] = []

        def reliable(theta: Tensors) -> tuple[Tensor, Tensor]:
            logits = passes.logits(theta, batch)
            entropy = softmax_entropy(self.cooled(logits.detach()))
            keep = entropy < self.margin * largest_entropy(logits)
            if kept:  # at the climbed point: those that were reliable before as well
                keep = keep & kept[0]
            kept.append(keep)
            entropies.append(entropy)
            weights = self.weighted(logits, keep.to(entropy.dtype))
            return passes.mean(self.term(logits), weights)

        ascent = passes.gradient(reliable, state.parameters)
        scale = self.radius / (ascent.norm() + 1e-12)
        climbed = {
            name: value + scale * ascent.tensors[name] for name, value in state.parameters.items()
        }
        after = passes.descend(state, reliable, at=climbed)
        averaged = self._averaged(after.memory, entropies[-1], kept[-1])
        collapsed = (averaged["averaged"] > 0) & (averaged["average"] < self.threshold)
        anew = {
            "average": torch.zeros_like(averaged["average"]),
            "averaged": torch.zeros_like(averaged["averaged"]),
            RESTARTS: averaged[RESTARTS] + 1,
        }
        return restarted_where(collapsed, passes, replace(after, memory=averaged), anew)

    def _averaged(self, memory: Tensors, entropy: Tensor, kept: Tensor) -> Tensors:
        """The memory with the mean entropy of the kept samples in its average; as it is without any."""
        count = kept.sum()
        latest = torch.where(kept, entropy, 0.0).sum() / count.clamp_min(1)
        mixed = self.momentum * memory["average"] + (1 - self.momentum) * latest
        average = torch.where(memory["averaged"] > 0, mixed, latest)
        return {
            **memory,
            "average": torch.where(count > 0, average, memory["average"]),
            "averaged": memory["averaged"] + (count > 0),
        }
