"""CoTTA: a teacher that averages over views, and weights that now and then return to the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.passes import Passes
from fenchel.adapters.state import State, Tensors
from fenchel.facts import Cost, Published
from fenchel.methods.inside import probabilities
from fenchel.methods.taught import TaughtMethod, moved_towards
from fenchel.names import register


@final
@register("cotta")
@dataclass(frozen=True, kw_only=True)
class CoTTA(TaughtMethod):
    """A student learns the mean prediction of its teacher over views; some of its weights go back.

    The teacher is the moving average of the student: momentum x teacher + (1 - momentum) x student. Its
    label of a batch comes from the mean logits over `views` strong views where the source model, with
    statistics of its own, is not sure of the batch (mean confidence below `confidence`), else from the
    batch as it is. After every step each weight of the student returns to the source's with the
    probability `restore`. The teacher predicts, with the same mean.
    """

    cost: ClassVar[Cost | None] = Cost(forward="3 to 34", backward="1", memory="teacher")
    paper: ClassVar[str] = (
        'Wang et al., "Continual Test-Time Domain Adaptation", CVPR 2022, arXiv 2203.13591'
    )
    defaults: ClassVar[Mapping[str, Any]] = {"parameters": "all", "predict": "before"}
    published: ClassVar[Published] = {
        "cifar10": {
            "confidence": 0.92,
            "restore": 0.01,
            "optimizer": "adam",
            "learning_rate": 1e-3,
        },
        "cifar100": {
            "confidence": 0.72,
            "restore": 0.01,
            "optimizer": "adam",
            "learning_rate": 1e-3,
        },
        "imagenet": {
            "confidence": 0.1,
            "restore": 0.001,
            "optimizer": "sgd",
            "learning_rate": 0.01,
        },
    }

    momentum: float = 0.999
    views: int = 32
    confidence: float = 0.92
    restore: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("momentum", "confidence", "restore"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"cotta needs 0 <= {name} <= 1; got {getattr(self, name)!r}.")
        if self.views < 1:
            raise ValueError(f"cotta needs at least one view; got views={self.views!r}.")

    def start(self, passes: Passes, batch: Inputs) -> Tensors:
        super().start(passes, batch)
        return {name: value.clone() for name, value in passes.source.items()}

    def update(self, passes: Passes, state: State, batch: Inputs) -> State:
        teacher = state.memory
        shown = self._prediction(passes, teacher, batch)
        label = passes.logits_in(shown, batch)

        def loss(theta: Tensors) -> tuple[Tensor, Tensor]:
            values = self.taught(passes.logits(theta, batch), label)
            return passes.mean(values, self.term.weights(label))

        state = passes.descend(state, loss)
        passes.remember(teacher, shown)
        return replace(
            state,
            parameters=self._restored(passes, state.parameters),
            memory=moved_towards(teacher, state.parameters, 1 - self.momentum),
        )

    def predictor(self, state: State) -> Tensors:
        return state.memory or state.parameters

    def output(self, passes: Passes, state: State, batch: Inputs) -> Any:
        known = passes.remembered(state.memory)
        return self._prediction(passes, state.memory, batch) if known is None else known

    def _prediction(self, passes: Passes, teacher: Tensors, batch: Inputs) -> Any:
        """The teacher's output, its logits averaged over views where the source is not sure.

        The host waits to learn whether it is: that decides on up to 31 passes.
        """
        sure = probabilities(passes.source_logits(batch)).amax(-1).mean()
        if not bool(sure < self.confidence):
            return passes.output(teacher, batch)
        total: Tensor | float = 0.0
        for _ in range(self.views):
            view = batch.changed(lambda images: self.strong_view(images, passes.generator))
            output = passes.output(teacher, view)
            total = total + passes.logits_in(output, view)
        if not isinstance(output, Tensor):  # whatever else the model returns is that of the batch
            output = passes.output(teacher, batch)
        return passes.with_logits(output, total / self.views)  # type: ignore[arg-type]

    def _restored(self, passes: Passes, parameters: Tensors) -> Tensors:
        restored = {}
        for name, value in parameters.items():
            draws = torch.rand(value.shape, generator=passes.generator).to(value.device)
            restored[name] = torch.where(draws < self.restore, passes.source[name], value)
        return restored
