"""DeYO: entropy on samples whose prediction depends on the shape of what they show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional as F

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.passes import Passes
from fenchel.adapters.state import State, Tensors
from fenchel.facts import Cost, Published
from fenchel.methods.gated import largest_entropy
from fenchel.methods.inside import EntropyMethod, probabilities, softmax_entropy
from fenchel.names import register


@final
@register("deyo")
@dataclass(frozen=True, kw_only=True)
class Deyo(EntropyMethod):
    """Entropy of samples that are sure, and less so once their patches are shuffled.

    Kept are samples with H < margin ln C and a drop d > drop, where d is what the probability of the
    predicted class loses when `patches` x `patches` patches of the image change places. Each counts
    exp(reference ln C - H) + exp(d). All shuffled images go through the network together, so that batch
    statistics are those of the whole batch.
    """

    shares_batches: ClassVar[bool] = True
    cost: ClassVar[Cost | None] = Cost(forward="2", backward="1")
    paper: ClassVar[str] = (
        'Lee et al., "Entropy is not Enough for Test-Time Adaptation: From the Perspective of Disentangled '
        'Factors", ICLR 2024, arXiv 2403.07366'
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

    margin: float = 0.5
    drop: float = 0.2
    reference: float = 0.4
    patches: int = 4

    def __post_init__(self) -> None:
        if not (0 <= self.margin <= 1 and -1 <= self.drop <= 1 and math.isfinite(self.reference)):
            raise ValueError(
                "Deyo needs a margin between 0 and 1, a drop between -1 and 1 and a finite reference; got "
                f"margin={self.margin!r}, drop={self.drop!r}, reference={self.reference!r}."
            )
        if self.patches < 2:
            raise ValueError(f"Deyo shuffles 2 x 2 patches or more; got patches={self.patches!r}.")

    def update(self, passes: Passes, state: State, batch: Inputs) -> State:
        shuffled = batch.changed(
            lambda images: shuffled_patches(images, self.patches, passes.generator)
        )
        their_logits = passes.logits(state.parameters, shuffled)
        without_shape = probabilities(self.cooled(their_logits))

        def loss(theta: Tensors) -> tuple[Tensor, Tensor]:
            logits = passes.logits(theta, batch)
            return passes.mean(self.term(logits), self.weights(logits, without_shape))

        return passes.descend(state, loss)

    @torch.no_grad()
    def weights(self, logits: Tensor, without_shape: Tensor) -> Tensor:
        """How much every sample counts: 0 unless it is sure, and loses enough without its shape."""
        cool = self.cooled(logits)
        entropy, p = softmax_entropy(cool), probabilities(cool)
        predicted = p.argmax(-1, keepdim=True)
        drop = (p.gather(-1, predicted) - without_shape.gather(-1, predicted)).squeeze(-1)
        most = largest_entropy(logits)
        kept = (entropy < self.margin * most) & (drop > self.drop)
        weights = (self.reference * most - entropy).exp() + drop.exp()
        return self.weighted(logits, torch.where(kept, weights, 0.0))


def shuffled_patches(images: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Every image cut into count x count patches that change places at random.

    Images whose sides are no multiples of `count` are resampled to the next lower ones and back.
    """
    if images.ndim != 4 or min(images.shape[-2:]) < count:
        raise ValueError(
            f"shuffling {count} x {count} patches needs images (samples, channels, height, width) of at "
            f"least that size; got shape {tuple(images.shape)}."
        )
    size = images.shape[-2:]
    height, width = (side // count for side in size)
    whole = (height * count, width * count)
    if whole != tuple(size):
        images = F.interpolate(images, whole, mode="bilinear", align_corners=False)
    number, channels = images.shape[:2]
    keys = torch.rand(number, count * count, generator=generator, dtype=torch.float64)
    order = keys.argsort(-1).to(images.device)
    patches = images.reshape(number, channels, count, height, count, width)
    patches = patches.permute(0, 2, 4, 1, 3, 5).reshape(number, count * count, -1)
    patches = patches.gather(1, order.unsqueeze(-1).expand_as(patches))
    patches = patches.reshape(number, count, count, channels, height, width)
    shuffled = patches.permute(0, 3, 1, 4, 2, 5).reshape(number, channels, *whole)
    if whole != tuple(size):
        shuffled = F.interpolate(shuffled, size, mode="bilinear", align_corners=False)
    return shuffled
