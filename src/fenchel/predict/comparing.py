"""What a stream predicts for a batch, and what the model would have said without adaptation."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from fenchel.adapters import Adapter, Scores, Session, Settings
from fenchel.adapters.likelihood import Probabilities
from fenchel.adapters.monitor import Verdict
from fenchel.predict.evidence import Prediction, Predictions

SourcePredictions = Literal["auto", "always", "never"]


def predicted(
    stream: Adapter | Session,
    settings: Settings,
    inputs: Tensor,
    when: SourcePredictions,
    *,
    needed: bool = False,
) -> Predictions:
    """Adapt to a batch and predict it; beside that, what the source model says of it.

    Where several processes share the batch, it is predicted whole by each of them; its samples are finite.

    Args:
        stream: what adapts.
        settings: those of its adapter.
        when: whether the source's word is wanted: with `auto` where the protection has asked for it anyway.
        needed: with `auto`, ask the source in any case.
    """

    def said(output: Any) -> Prediction:
        scores = scores_in(output, settings.logits)
        if settings.group is not None:
            scores = settings.group.whole(scores)
        p = Probabilities(settings.loss)(scores)
        return Prediction.of(scores.detach().float().softmax(-1) if p is None else p)

    before = None if stream.watch is None else stream.watch.latest
    adapted = said(stream(inputs))
    if when == "never":
        return Predictions(adapted)
    watch = stream.watch
    # A batch that was not watched, such as one of a frozen stream, leaves the report of another one there.
    if watch is not None and watch.latest is not before and watch.beside is not None:
        source, unmoved = watch.beside.source, watch.beside.unmoved
        if settings.group is None:
            source = _in_their_rows(source, inputs)
            unmoved = None if unmoved is None else _in_their_rows(unmoved, inputs)
        return Predictions(
            adapted,
            Prediction.of(source),
            None if unmoved is None else Prediction.of(unmoved),
        )
    if when != "always" and not needed:
        return Predictions(adapted)
    theirs = said(stream.source_prediction(inputs))
    if not stream.state.parameters:
        return Predictions(adapted, theirs)
    return Predictions(adapted, theirs, said(stream.unmoved_prediction(inputs)))


def verdict_on(stream: Adapter | Session) -> tuple[Verdict, str]:
    """The protection's word on the last batch, and why."""
    watch = stream.watch
    if watch is None or watch.latest is None:
        health = stream.health()
        return health.verdict, health.reason
    return watch.latest.verdict, watch.latest.reason


def scores_in(output: Any, where: Scores) -> Tensor:
    """The scores (samples, classes) in a model's output; one score means two classes."""
    scores = where(output)
    if scores.ndim != 2:
        raise ValueError(f"image predictions need scores (N, classes); got {tuple(scores.shape)}.")
    return torch.cat([-scores, scores], dim=-1) if scores.shape[-1] == 1 else scores


def _in_their_rows(found: Tensor, inputs: Tensor) -> Tensor:
    """Probabilities of the finite samples of a batch, in the rows of all; the others are not numbers."""
    if len(found) == len(inputs):
        return found
    finite = inputs.isfinite().flatten(1).all(-1)
    rows = found.new_full((len(inputs), found.shape[-1]), torch.nan)
    rows[finite] = found
    return rows
