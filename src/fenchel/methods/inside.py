"""Methods that minimise an entropy, with the conjugate objective of the training loss in its place."""

from __future__ import annotations

import dataclasses
from abc import ABC
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from fenchel.adapters.inputs import Inputs
from fenchel.adapters.method import Method
from fenchel.adapters.passes import Passes
from fenchel.adapters.state import Tensors
from fenchel.losses import CrossEntropy, Loss, OneOfMany
from fenchel.names import format_spec, parse_spec
from fenchel.objectives import OBJECTIVES, Conjugate, Objective

if TYPE_CHECKING:
    from typing_extensions import Self

PUBLISHED = "published"
"""The name of the loss term that the authors used, whatever the training loss."""


@dataclass(frozen=True, kw_only=True)
class EntropyMethod(Method, ABC):
    """A method whose published form minimises an entropy of the prediction.

    Its loss term is an `objective`: by default the conjugate objective of the training loss, which for
    cross-entropy is the entropy and hence the published method, exactly. `objective="entropy"` is the
    published form for any loss. An objective may be named as in specs, or be an `Objective`.

    Gates and weights never see it: they are functions of the softmax entropy in nats, whose thresholds
    and exponents would mean nothing for an objective on another scale, or without a minimum. Like
    everything in an objective they are computed on logits / temperature.
    """

    published_objective: ClassVar[str] = "entropy"
    """What `objective="published"` stands for."""

    objective: Objective | str = "conjugate"

    @property
    def term(self) -> Objective:
        """The objective, once the training loss is known."""
        if isinstance(self.objective, str):
            raise ValueError(
                f"{type(self).__name__} does not know the training loss yet, from which its objective "
                f"{self.objective!r} is made. Pass it to fenchel.adapt, or set objective=fenchel.Entropy()."
            )
        return self.objective

    def cooled(self, logits: Tensor) -> Tensor:
        """The logits at the objective's temperature, as gates and weights see them."""
        temperature = self.term.temperature
        return logits if temperature == 1 else logits / temperature

    def weighted(self, logits: Tensor, weights: Tensor) -> Tensor:
        """The weights of a gate, times those that the objective itself gives to the samples."""
        own = self.term.weights(logits)
        return weights if own is None else weights * own

    @classmethod
    def made_for(
        cls,
        loss: Loss | None,
        *,
        title: str | None = None,
        temperature: float | None = None,
        **options: Any,
    ) -> Self:
        """An instance whose objective is made for the training loss, at the given temperature."""
        made = super().made_for(loss, title=title, **options)
        return made._with_objective(loss, title or cls.__name__, temperature)

    def trained_with(self, loss: Loss | None) -> Self:
        """The method with its objective made for the training loss."""
        return self._with_objective(loss, type(self).__name__, None)

    def _with_objective(self, loss: Loss | None, title: str, temperature: float | None) -> Self:
        self._require_classes(loss, title)
        found = self.objective
        if isinstance(found, str):
            found = self._named(found, loss, title)
        if not isinstance(found, Objective):
            raise TypeError(
                f"objective is a name such as 'entropy', or a fenchel.Objective; got "
                f"{type(found).__name__}."
            )
        if type(found).make_views is not Objective.make_views:
            raise ValueError(
                f"the objective inside method {title!r} is computed on the batch as it is; "
                f"{type(found).__name__} makes views of it. Use 'conjugate' or 'entropy'."
            )
        if temperature is not None:
            found = dataclasses.replace(found, temperature=temperature)
        return dataclasses.replace(self, objective=found)

    def _require_classes(self, loss: Loss | None, title: str) -> None:
        """Refuse losses whose labels are not one class out of many."""
        if loss is not None and not isinstance(loss.labels, OneOfMany):
            raise ValueError(
                f"method {title!r} judges samples by the entropy of a softmax over classes; {loss!r} has "
                "labels of another kind (several at once, or a sign). Use method='conjugate', 'entropy', "
                "'hard' or 'soft'."
            )

    def _named(self, spec: str, loss: Loss | None, title: str) -> Objective:
        name, options = parse_spec(self.published_objective if spec == PUBLISHED else spec)
        kind = OBJECTIVES[name]
        if loss is None and kind.needs_loss():
            raise ValueError(
                f"method {title!r} takes its objective {name!r} from the loss the model was trained with, "
                "which was not given. Pass trained_with=, for example trained_with=fenchel.CrossEntropy(), "
                "or objective='entropy' for the published form."
            )
        return kind.made_for(loss, title=name, **options)

    def settings(self) -> dict[str, Any]:
        """The values of its options, the objective by its name where it has one."""
        return {**super().settings(), "objective": written(self.objective)}

    def check(self) -> None:
        """Refuse an objective without a gradient."""
        self.term.check()

    def start(self, passes: Passes, batch: Inputs) -> Tensors:
        """What it remembers before the first batch, whose logits must name at least two classes."""
        logits = passes.logits(passes.source, batch)
        if logits.shape[-1] < 2:
            raise ValueError(
                f"{type(self).__name__} judges samples by the entropy of a softmax, which needs two "
                f"classes or more; got logits of shape {tuple(logits.shape)}. Use method='conjugate'."
            )
        return self.first_memory(logits)

    def first_memory(self, logits: Tensor) -> Tensors:
        """What it remembers before the first batch, given the source model's logits for it."""
        return {}


def written(objective: Objective | str) -> Objective | str:
    """An objective as a spec; as itself if it has no name or holds more than plain values."""
    if isinstance(objective, str):
        return objective
    if isinstance(objective, Conjugate):
        return "conjugate"
    names = [name for name, kind in OBJECTIVES.everything().items() if kind is type(objective)]
    options = {
        name: value
        for name, value in objective.settings().items()
        if value != objective.options().get(name)
    }
    plain = all(isinstance(value, bool | int | float | str) for value in options.values())
    return format_spec(names[0], options) if names and plain else objective


def softmax_entropy(logits: Tensor) -> Tensor:
    """The entropy of softmax(logits) in nats, (..., C) -> (...)."""
    return CrossEntropy().conjugate(logits)


def probabilities(logits: Tensor) -> Tensor:
    """softmax(logits); half precision is raised."""
    half = logits.dtype in (torch.float16, torch.bfloat16)
    return (logits.float() if half else logits).softmax(-1)
