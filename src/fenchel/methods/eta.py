"""ETA: entropy on reliable samples that are unlike what was seen so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from fenchel.facts import Cost, Published
from fenchel.methods.gated import ReliableAndNew
from fenchel.names import register

PAPER = 'Niu et al., "Efficient Test-Time Model Adaptation without Forgetting", ICML 2022, arXiv 2204.02610'


@final
@register("eta")
@dataclass(frozen=True, kw_only=True)
class Eta(ReliableAndNew):
    """Entropy of reliable, non-redundant samples, the surer the heavier (EATA without its anchor)."""

    cost: ClassVar[Cost | None] = Cost(forward="1", backward="1", memory="mean prediction")
    paper: ClassVar[str] = PAPER
    published: ClassVar[Published] = {
        "cifar10": {
            "similarity": 0.4,
            "optimizer": "adam",
            "learning_rate": 1e-3,
            "predict": "before",
        },
        "imagenet": {
            "similarity": 0.05,
            "optimizer": "sgd",
            "learning_rate": 2.5e-4,
            "predict": "before",
        },
    }
