"""RoTTA: student and teacher train on a balanced bank of samples, for streams whose classes come in runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.normalization import Statistics
from fenchel.adapters.passes import Passes
from fenchel.adapters.state import State, Tensors
from fenchel.facts import Cost, Published
from fenchel.methods.bank import Bank, Sample
from fenchel.methods.inside import softmax_entropy
from fenchel.methods.taught import TaughtMethod, moved_towards
from fenchel.names import register


@final
@register("rotta")
@dataclass(frozen=True, kw_only=True)
class RoTTA(TaughtMethod):
    """A student learns its teacher's labels on a bank of samples, every `bank` samples; the teacher predicts.

    Samples enter the bank under the class and the softmax entropy of the teacher's prediction (see
    `Bank`). A step: the student, on strong views of the bank, learns the teacher's labels of the bank,
    young samples counting more. The bank enters the running statistics of both with the weight `alpha`;
    then the teacher moves towards the student by `nu`. Predictions use the teacher's running statistics
    and nothing of the batch around a sample.
    """

    cost: ClassVar[Cost | None] = Cost(
        forward="1 + 2 per 64 samples",
        backward="1 per 64 samples",
        memory="teacher, statistics, 64 images",
    )
    paper: ClassVar[str] = (
        'Yuan et al., "Robust Test-Time Adaptation in Dynamic Scenarios", CVPR 2023, arXiv 2303.13899'
    )
    defaults: ClassVar[Mapping[str, Any]] = {"predict": "before"}
    published: ClassVar[Published] = {
        data: {"bank": 64, "alpha": 0.05, "nu": 1e-3, "optimizer": "adam", "learning_rate": 1e-3}
        for data in ("cifar10", "cifar100")
    }

    bank: int = 64
    alpha: float = 0.05
    nu: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bank < 1:
            raise ValueError(f"rotta needs a bank of at least one sample; got {self.bank!r}.")
        for name in ("alpha", "nu"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"rotta needs 0 <= {name} <= 1; got {getattr(self, name)!r}.")

    @property
    def statistics(self) -> Statistics:
        """The source's, in the place of which student and teacher put their own."""
        return "source"

    def start(self, passes: Passes, batch: Inputs) -> Tensors:
        statistics = passes.source_statistics
        samples = batch.samples()
        return {
            **_filed("teacher", {**passes.source, **statistics}),
            **_filed("student", statistics),
            **Bank.empty(self.bank, samples, super().start(passes, batch)["entropies"]),
            "seen": torch.zeros((), dtype=torch.int64, device=samples.device),
        }

    def first_memory(self, logits: Tensor) -> Tensors:
        return {**super().first_memory(logits), "entropies": softmax_entropy(logits)}

    def update(self, passes: Passes, state: State, batch: Inputs) -> State:
        teacher = _part(state.memory, "teacher")
        shown = passes.output(teacher, batch)
        passes.remember(teacher, shown)
        logits = passes.logits_in(shown, batch)
        labels, entropies = logits.argmax(-1).tolist(), softmax_entropy(logits).tolist()
        images = torch.cat([state.memory["images"], batch.whole(batch.samples())])
        bank = Bank(self.bank, logits.shape[-1], state.memory)
        seen = int(state.memory["seen"])
        for number, (label, entropy) in enumerate(zip(labels, entropies, strict=True)):
            bank.add(Sample(self.bank + number, label, entropy))
            if (seen + number + 1) % self.bank == 0:
                state = self._lesson(passes, state, bank, images)
        memory = {**state.memory, **bank.memory(state.memory, images)}
        memory["seen"] = state.memory["seen"] + len(labels)
        return replace(state, memory=memory)

    def predictor(self, state: State) -> Tensors:
        return _part(state.memory, "teacher") or state.parameters

    def _lesson(self, passes: Passes, state: State, bank: Bank, images: Tensor) -> State:
        """One step of student and teacher on the bank; only the bank itself stays as it is in memory."""
        samples = bank.images(images)
        plain = passes.batch.unshared(samples)
        strong = passes.batch.unshared(self.strong_view(samples, passes.generator))
        teacher, student = (_part(state.memory, who) for who in ("teacher", "student"))
        label, its_statistics = passes.mixing_logits(teacher, plain, self.alpha)
        weights = self.weighted(label, bank.weights(label))

        def loss(theta: Tensors) -> tuple[Tensor, Tensor]:
            logits, found = passes.mixing_logits({**theta, **student}, strong, self.alpha)
            student.update(found)
            return passes.mean(self.taught(logits, label), weights)

        state = passes.descend(state, loss)
        teacher = {**moved_towards(teacher, state.parameters, self.nu), **its_statistics}
        memory = {**state.memory, **_filed("teacher", teacher), **_filed("student", student)}
        return replace(state, memory=memory)


def _filed(who: str, tensors: Tensors) -> Tensors:
    return {f"{who}.{name}": value for name, value in tensors.items()}


def _part(memory: Tensors, who: str) -> Tensors:
    """What is filed under `who`, by its own names."""
    prefix = f"{who}."
    return {
        name.removeprefix(prefix): value
        for name, value in memory.items()
        if name.startswith(prefix)
    }
