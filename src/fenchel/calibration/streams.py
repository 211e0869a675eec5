"""Streams of shifted source samples on which settings are tried, and what they show of a model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from fenchel.adapters import Adapter
from fenchel.adapters.core import Core, Settings
from fenchel.adapters.inputs import Inputs
from fenchel.adapters.likelihood import Probabilities
from fenchel.adapters.monitor import THRESHOLDS, Compared, Predicted, Thresholds
from fenchel.adapters.optimizers import SGD
from fenchel.api import adapt
from fenchel.calibration.shifting import Shifting
from fenchel.methods.descent import Descent
from fenchel.objectives import Entropy

FEWEST = 32
HEALTHY = 1.0
"""Points by which a run may be worse than without updates and still count as healthy."""
ROOM = 0.9
"""Thresholds of the monitor keep this distance from what healthy runs show."""
COLLAPSED_BELOW = 0.8
"""Of the share of classes at which predictions are suspect."""

Advance = Callable[[int, int], object]


@dataclass
class ShiftedStreams:
    """Source samples under every shift, with labels to judge by.

    arguments: those of `adapt` that are not chosen.
    labels: the classes; None for the source model's own predictions on the samples as they are.
    length: every shift is a stream of about so many; fewer samples come several times, shifted anew.
    """

    model: nn.Module
    arguments: dict[str, Any]
    shifting: Shifting
    samples: Tensor
    labels: Tensor | None
    batch_size: int
    length: int
    seed: int
    advance: Callable[[], object] = field(default=lambda: None)

    def __post_init__(self) -> None:
        if len(self.samples) < FEWEST:
            raise ValueError(
                f"calibrating needs {FEWEST} source samples or more, better a few hundred; got "
                f"{len(self.samples)}. Pass more."
            )
        for name in ("batch_size", "length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)!r}.")
        if self.labels is None:
            self.labels = self._predicted()
        elif self.labels.shape != (len(self.samples),):
            raise ValueError(
                f"labels are one class per sample, of shape ({len(self.samples)},); got "
                f"{tuple(self.labels.shape)}."
            )

    def tell(self, trials: int, advance: Advance | None) -> None:
        """Let `advance` know of every stream that is done."""
        total, done = trials * len(self.shifting.kinds), 0

        def step() -> None:
            nonlocal done
            done += 1
            if advance is not None:
                advance(done, total)

        self.advance = step

    def error_of(self, settings: dict[str, Any]) -> float:
        """The error of some settings in percent: mean over the shifts, each from the source on."""
        errors = []
        for kind in self.shifting.kinds:
            adapted = self._adapter(settings)
            wrong = count = 0
            for batch, labels in self._stream(kind):
                wrong += int((self._classes(adapted, adapted(batch)) != labels).sum())
                count += len(labels)
            errors.append(100 * wrong / count)
            self.advance()
        return sum(errors) / len(errors)

    def thresholds(self, settings: dict[str, Any]) -> Thresholds:
        """The monitor's, wide enough that no healthy run over a shift is called suspect."""
        found = THRESHOLDS
        for kind in self.shifting.kinds:
            adapted = self._adapter(settings)
            compared, worse = None, 0
            for batch, labels in self._stream(kind):
                ours = adapted(batch)
                unmoved = adapted.unmoved_prediction(batch)
                worse += int((self._classes(adapted, ours) != labels).sum())
                worse -= int((self._classes(adapted, unmoved) != labels).sum())
                one = self._compared(adapted, ours, adapted.source_prediction(batch), unmoved)
                compared = one if compared is None or one is None else compared + one
            healthy = 100 * worse <= HEALTHY * self.length
            if compared is not None and healthy:
                found = widened(found, compared)
        return found

    def feature_moments(self) -> tuple[Tensor, Tensor] | None:
        """Mean and variance of what the head is given, on the source; None without a linear head."""
        core = Core.of(
            self.model,
            Settings(
                method=Descent(objective=Entropy()),
                optimizer=SGD(),
                statistics="source",
                logits=self._adapter({}).settings.logits,
            ),
        )
        rows = []
        with torch.no_grad():
            for part in torch.split(self.samples, self.batch_size):
                with core.step.passes(core.initial_state(), Inputs((part,), {})) as passes:
                    try:
                        features, _ = passes.features(passes.source, passes.batch)
                    except ValueError:
                        return None
                rows.append(features.double().flatten(0, -2).cpu())
        whole = torch.cat(rows)
        return whole.mean(0), whole.var(0, correction=0)

    def _stream(self, kind: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Shifted batches with their labels; every pass over the samples has its own order and noise."""
        assert self.labels is not None
        size, passes = len(self.samples), max(1, round(self.length / len(self.samples)))
        for turn in range(passes):
            generator = torch.Generator().manual_seed(1000 * self.seed + turn)
            order = torch.randperm(size, generator=generator)[: self.length]
            shifted = self.shifting.shifted(self.samples[order], kind, self.seed * passes + turn)
            for rows in torch.split(torch.arange(len(order)), self.batch_size):
                yield shifted[rows], self.labels[order[rows]]

    def _adapter(self, settings: dict[str, Any]) -> Adapter:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # small batches, objectives without a minimum
            return adapt(self.model, protect=False, **{**self.arguments, **settings})

    def _predicted(self) -> Tensor:
        """The classes that the source model sees in the samples as they are."""
        source = self._adapter({})
        parts = torch.split(self.samples, self.batch_size)
        return torch.cat([self._classes(source, source.source_prediction(part)) for part in parts])

    def _classes(self, adapted: Adapter, output: Any) -> Tensor:
        """The predicted classes; those of labels that may hold together are refused."""
        p = self._probabilities(adapted, output)
        if p is None:
            raise ValueError(
                "settings are chosen by the error of one predicted class per sample; this model gives "
                "something else. Choose them yourself: learning_rate=, temperature=."
            )
        return p.argmax(-1).cpu()

    def _probabilities(self, adapted: Adapter, output: Any) -> Tensor | None:
        return Probabilities(adapted.settings.loss)(adapted.step.scores(output))

    def _compared(self, adapted: Adapter, ours: Any, source: Any, unmoved: Any) -> Compared | None:
        found = [self._probabilities(adapted, output) for output in (ours, source, unmoved)]
        known = [Predicted.of(p) for p in found if p is not None]
        if len(known) < len(found):
            return None
        predicted, theirs, resting = known
        return Compared(predicted, theirs, resting)


def widened(limits: Thresholds, healthy: Compared) -> Thresholds:
    """Thresholds that call these predictions healthy, with some room; never narrower than before."""
    ours = healthy.adapted.effective_classes
    of_source = ROOM * ours / healthy.source.effective_classes
    unmoved = healthy.unmoved
    of_unmoved = of_source if unmoved is None else ROOM * ours / unmoved.effective_classes
    information = healthy.source.mutual_information
    lost = information - healthy.adapted.mutual_information
    by_statistics = lost if unmoved is None else information - unmoved.mutual_information
    return replace(
        limits,
        suspect=min(limits.suspect, of_source),
        collapsed=min(limits.collapsed, COLLAPSED_BELOW * of_source),
        suspect_unmoved=min(limits.suspect_unmoved, of_unmoved),
        collapsed_unmoved=min(limits.collapsed_unmoved, COLLAPSED_BELOW * of_unmoved),
        lost_information=max(limits.lost_information, lost / ROOM),
        lost_by_statistics=max(limits.lost_by_statistics, by_statistics / ROOM),
    )
