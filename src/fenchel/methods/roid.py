"""ROID: certainty and diversity weigh the samples, two views must agree, the source keeps its say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.passes import Passes
from fenchel.adapters.state import State, Tensors
from fenchel.facts import Cost, Published
from fenchel.losses import CrossEntropy, LabelSmoothing, Loss
from fenchel.methods.gated import cosine, sure_and_different
from fenchel.methods.inside import EntropyMethod, probabilities, softmax_entropy
from fenchel.names import register
from fenchel.objectives import Objective
from fenchel.objectives.pixels import KnowsPixels
from fenchel.objectives.strong_view import strong_view


@final
@register("roid")
@dataclass(frozen=True, kw_only=True)
class Roid(EntropyMethod, KnowsPixels):
    """Weighted soft likelihood ratio and agreement of two views, a pull to the source, a corrected prior.

    A sample counts w = exp(d c / tau): d is how far its prediction is from the mean prediction, c how sure
    it is, both scaled to [0, 1] within the batch; samples whose d is below the batch's mean count nothing.
    The loss is the batch's mean of w (objective + symmetric cross-entropy to an augmented view). After
    the step theta <- momentum theta + (1 - momentum) source. Predicted probabilities are multiplied by the
    smoothed class frequencies of the batch.

    For a model trained with cross-entropy the objective is the published soft likelihood ratio; for
    another loss it is the conjugate objective, and `objective="likelihood-ratio"` the published form.
    """

    shares_batches: ClassVar[bool] = True
    published_objective: ClassVar[str] = "likelihood-ratio"
    cost: ClassVar[Cost | None] = Cost(
        forward="2", backward="2", memory="source parameters, mean prediction", needs_batch=True
    )
    paper: ClassVar[str] = (
        'Marsden, Döbler and Yang, "Universal Test-time Adaptation through Weight Ensembling, Diversity '
        'Weighting, and Prior Correction", WACV 2024, arXiv 2306.00650'
    )
    published: ClassVar[Published] = {
        "cifar10": {"optimizer": "adam", "learning_rate": 1e-3, "predict": "before"},
        "cifar100": {"optimizer": "adam", "learning_rate": 1e-3, "predict": "before"},
        "imagenet": {"optimizer": "sgd", "learning_rate": 2.5e-4, "predict": "before"},
    }

    sharpness: float = 1 / 3
    momentum: float = 0.99
    prediction_momentum: float = 0.9
    consistency: bool = True
    prior_correction: bool = True

    def __post_init__(self) -> None:
        KnowsPixels.__post_init__(self)
        if not (
            self.sharpness > 0 and 0 <= self.momentum <= 1 and 0 <= self.prediction_momentum <= 1
        ):
            raise ValueError(
                "Roid needs sharpness > 0 and momenta between 0 and 1; got "
                f"sharpness={self.sharpness!r}, momentum={self.momentum!r}, "
                f"prediction_momentum={self.prediction_momentum!r}."
            )

    def check(self) -> None:
        """Refuse an objective without a gradient, and images of which no view can be made."""
        super().check()
        if self.consistency:
            self.require_pixels()

    def _named(self, spec: str, loss: Loss | None, title: str) -> Objective:
        entropy = isinstance(loss, CrossEntropy | LabelSmoothing)
        published = spec == "conjugate" and entropy
        return super()._named(self.published_objective if published else spec, loss, title)

    def first_memory(self, logits: Tensor) -> Tensors:
        classes = logits.shape[-1]
        return {"mean_prediction": probabilities(logits).new_full((classes,), 1 / classes)}

    def update(self, passes: Passes, state: State, batch: Inputs) -> State:
        mean = state.memory["mean_prediction"]
        view = self._view(passes, batch)
        seen: list[Tensor] = []

        def loss(theta: Tensors) -> Tensor:
            logits = passes.logits(theta, batch)
            seen[:] = [logits.detach()]
            weights = self.weights(logits, mean)
            values = self.term(logits) * self.weighted(logits, weights)
            if view is not None:
                others = self.cooled(passes.logits(theta, view))
                values = values + weights * disagreement(others, self.cooled(logits))
            return values.mean()

        after = passes.descend(state, loss)
        pulled = {
            name: self.momentum * value + (1 - self.momentum) * passes.source[name]
            for name, value in after.parameters.items()
        }
        latest = probabilities(self.cooled(seen[0])).flatten(0, -2).mean(0)
        mixed = self.prediction_momentum * mean + (1 - self.prediction_momentum) * latest
        return replace(after, parameters=pulled, memory={"mean_prediction": mixed})

    def output(self, passes: Passes, state: State, batch: Inputs) -> Any:
        output = passes.output(state.parameters, batch)
        if not self.prior_correction:
            return output
        return passes.with_logits(output, with_batch_prior(passes.logits_in(output, batch)))

    @torch.no_grad()
    def weights(self, logits: Tensor, mean: Tensor) -> Tensor:
        """How much every sample counts, by how different and how sure its prediction is."""
        cool = self.cooled(logits)
        different = 1 - cosine(probabilities(cool), mean)
        return sure_and_different(different, -softmax_entropy(cool), self.sharpness)

    def _view(self, passes: Passes, batch: Inputs) -> Inputs | None:
        if not self.consistency:
            return None
        change = partial(strong_view, generator=passes.generator)
        return batch.changed(lambda images: self.changed(images, change))


def disagreement(one: Tensor, other: Tensor) -> Tensor:
    """The symmetric cross-entropy of two predictions: half of each in the other."""
    log_p, log_q = one.log_softmax(-1), other.log_softmax(-1)
    return -(log_q.exp() * log_p + log_p.exp() * log_q).sum(-1) / 2


def with_batch_prior(logits: Tensor) -> Tensor:
    """Logits whose probabilities are multiplied by the class frequencies that the batch suggests.

    The frequencies are smoothed by g = max(1/N, 1/C) / max(prior): (prior + g) / (1 + g C). The factor
    belongs to the probabilities, so its logarithm is added to the logits.
    """
    p = probabilities(logits).flatten(0, -2)
    samples, classes = p.shape
    prior = p.mean(0)
    smoothing = max(1 / samples, 1 / classes) / prior.amax()
    smoothed = (prior + smoothing) / (1 + smoothing * classes)
    return logits + smoothed.log().to(logits.dtype)
