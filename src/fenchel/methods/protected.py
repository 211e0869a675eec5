"""The default: the conjugate objective on samples that are sure and different, in small bounded steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, final

import torch
from torch import Tensor

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.likelihood import Probabilities, are_copies
from fenchel.adapters.normalization import batch_norm_layers
from fenchel.adapters.passes import Passes
from fenchel.adapters.state import State, Tensors, chosen
from fenchel.adapters.suited import RUNS, TRUST
from fenchel.facts import Cost
from fenchel.losses import Loss
from fenchel.methods.gated import cosine, sure_and_different
from fenchel.methods.inside import EntropyMethod
from fenchel.names import register

if TYPE_CHECKING:
    from typing_extensions import Self

MEAN = "mean_prediction"
UNSHOWN, WITHOUT = 0.25, 0.125
"""The share of a step where nothing shows whether the stream has moved, and that in networks without batch
normalisation, which gain less and are harmed more easily."""
RETURN = 0.5
"""How far the parameters go back at a step where the stream is the source's, besides the pull."""


@final
@register("protected")
@dataclass(frozen=True, kw_only=True)
class Protected(EntropyMethod):
    """The conjugate objective, made safe: sure and different samples weigh more, steps are bounded, the
    source pulls back.

    A sample counts w = exp(d c / sharpness): d is how far its prediction is from the mean prediction, c how
    sure it is, both scaled to [0, 1] within the batch; samples whose d is below the batch's mean count
    nothing (as in ROID). With `sharpness=None` all samples count the same. A batch that is one image several
    times, as of a sensor that blacks out, teaches nothing. A step of the optimiser is shortened to `longest`
    times the length of the source's parameters, all of them taken together, and then

        theta <- source + (1 - pull) (theta - source) + step

    Batches of n samples, fewer than `full`, move and are pulled by (n / full)² of that: more of them come per
    image, and the gradient of few samples is mostly noise.

    Labels that come in runs shorten steps, down to none: a batch of one class says little about the others.
    Where statistics suit the batch and show that the stream is still the source's, steps are shorter, down to
    none, and the parameters go back by half of their way: what the network was trained on needs no adapting.
    So it is while the statistics are not trusted, a trial of them having failed. Where nothing shows whether
    the stream has moved, steps are a quarter as long; in networks without batch normalisation, an eighth. A
    batch on which no step is allowed leaves the optimiser and the mean prediction as they are. The parameters
    never leave the ball of radius longest / pull around the source, whatever the rate.
    """

    shares_batches: ClassVar[bool] = True
    cost: ClassVar[Cost | None] = Cost(
        forward="1", backward="1", memory="source parameters, mean prediction"
    )
    defaults: ClassVar[Mapping[str, Any]] = {
        "optimizer": "adam",
        "learning_rate": 1e-2,
        "statistics": "auto",
        "predict": "before",
    }

    sharpness: float | None = 1 / 3
    momentum: float = 0.9
    longest: float = 0.003
    pull: float = 0.02
    full: int = 64
    loss: Loss | None = None

    def __post_init__(self) -> None:
        for name, valid, rule in (
            ("sharpness", self.sharpness is None or self.sharpness > 0, "sharpness > 0 or None"),
            ("momentum", 0 <= self.momentum <= 1, "0 <= momentum <= 1"),
            ("longest", self.longest > 0, "longest > 0"),
            ("pull", 0 < self.pull <= 1, "0 < pull <= 1"),
            ("full", self.full >= 1, "full >= 1"),
        ):
            if not valid:
                raise ValueError(f"protected needs {rule}; got {name}={getattr(self, name)!r}.")

    def trained_with(self, loss: Loss | None) -> Self:
        return replace(super().trained_with(loss), loss=loss)

    @property
    def has_minimum(self) -> bool:
        """Whatever the objective is, the parameters stay near the source's."""
        return True

    def _require_classes(self, loss: Loss | None, title: str) -> None:
        """Labels of any kind will do: without classes all samples weigh the same."""

    def start(self, passes: Passes, batch: Inputs) -> Tensors:
        return self.first_memory(passes.logits(passes.source, batch))

    def first_memory(self, logits: Tensor) -> Tensors:
        p = self._probabilities(logits)
        return {} if p is None else {MEAN: _even(p)}

    def update(self, passes: Passes, state: State, batch: Inputs) -> State:
        seen: list[tuple[Tensor, Tensor]] = []
        samples = self.full

        def loss(theta: Tensors) -> tuple[Tensor, Tensor]:
            nonlocal samples
            logits = passes.logits(theta, batch)
            samples = len(logits)
            weights = torch.ones_like(logits[..., 0])
            p = self._probabilities(logits)
            if p is not None:
                copies = are_copies(logits)
                seen[:] = [(p, copies)]
                found = self.weights(p, state.memory.get(MEAN, _even(p)))
                weights = torch.where(copies, 0, found).to(logits.dtype)
            return passes.mean(self.term(logits), self.weighted(logits, weights))

        after = passes.descend(state, loss)
        share = min(1.0, samples / self.full) ** 2
        allowed = self.allowed(passes, state)
        learns = allowed > 0
        memory = state.memory
        if seen and MEAN in memory:  # a state saved by a method without it has none
            ((p, copies),) = seen
            mean = torch.lerp(memory[MEAN], p.mean(0), 1 - self.momentum)
            memory = {MEAN: torch.where(learns & ~copies, mean, memory[MEAN])}
        return replace(
            after,
            parameters=self.bounded(passes, state, after, share, allowed),
            moments=chosen(learns, after.moments, state.moments),
            memory=memory,
        )

    def weights(self, p: Tensor, mean: Tensor) -> Tensor:
        """How much every sample counts, by how different and how sure its prediction is."""
        if self.sharpness is None:
            return torch.ones_like(p[..., 0])
        return sure_and_different(
            1 - cosine(p, mean), -torch.special.entr(p).sum(-1), self.sharpness
        )

    def moved(self, passes: Passes, state: State) -> Tensor | None:
        """How certain it is that the stream has moved, and is worth adapting to; None if nothing tells."""
        if passes.moved is None:
            return None
        trusted = state.seen.get(TRUST, torch.ones(())) >= 1
        return passes.moved * trusted.to(passes.moved)

    def allowed(self, passes: Passes, state: State) -> Tensor:
        """The share of the longest step, 0 to 1, that the stream allows."""
        like = next(iter(passes.source.values()))
        kind = torch.promote_types(like.dtype, torch.float32)
        if (moved := self.moved(passes, state)) is not None:
            found = moved.to(like.device, kind)
        else:
            share = UNSHOWN if batch_norm_layers(passes.network.module) else WITHOUT
            found = like.new_full((), share, dtype=kind)
        if RUNS in state.seen:
            found = found * (1 - state.seen[RUNS].to(found))
        return found

    def bounded(
        self, passes: Passes, before: State, after: State, share: float, allowed: Tensor
    ) -> Tensors:
        """The parameters after a shortened step, drawn towards the source; `share` is the batch's."""
        old, new, source = before.parameters, after.parameters, passes.source
        length = _length([new[name] - old[name] for name in old])
        longest = share * allowed * self.longest * _length(list(source.values()))
        factor = (longest / length.clamp_min(1e-30)).clamp(max=1)
        pull = torch.full_like(longest, share * self.pull)
        if (moved := self.moved(passes, before)) is not None:
            pull = pull + share * RETURN * (1 - moved.to(pull))
        return {
            name: torch.lerp(value, source[name], pull.to(value.dtype))
            + (new[name] - value) * factor.to(value.dtype)
            for name, value in old.items()
        }

    def _probabilities(self, logits: Tensor) -> Tensor | None:
        return Probabilities(self.loss)(logits / self.term.temperature)


def _even(p: Tensor) -> Tensor:
    """The distribution in which all classes are alike."""
    return p.new_full(p.shape[-1:], 1 / p.shape[-1])


def _length(tensors: list[Tensor]) -> Tensor:
    """The Euclidean length of all tensors together, in float32 at least."""
    wide = torch.promote_types(tensors[0].dtype, torch.float32)
    squares = [value.to(wide).square().sum() for value in tensors]
    return torch.stack(squares).sum().sqrt()
