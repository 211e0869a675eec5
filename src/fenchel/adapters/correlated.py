"""Labels that come in runs: noticed by the predictions themselves, and made use of in the output.

If the classes of successive images are independent, the predicted classes of a batch of n spread about those
of the whole stream by 1 / n of their variance. In a stream that is sorted by class, batches differ by nearly
all of it. That share is the correlation: 0 for independent labels, 1 for batches of one class each.

Where it is high, the classes of a batch are known better than those of one image: the output is multiplied
by the batch's class frequencies, which expectation-maximisation finds from the predictions (Saerens et al.,
"Adjusting the Outputs of a Classifier to New a Priori Probabilities", Neural Computation 2002).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fenchel.adapters.state import Tensors
from fenchel.adapters.suited import INDEPENDENT, RUNS

WINDOW, RECENT = 1000.0, 64.0
"""Samples by which the classes of the stream are known, and those of the present."""
SMOOTHING = 0.3
"""The weight of a batch in the correlation."""
CERTAIN = 3.0
"""Batches count fully until their classes vary by so many times what independent ones do."""
NOTICED, STRONG = 0.05, 0.15
"""The correlation at which the output begins to be corrected, and that at which it is so in full."""
SPREAD = 10.0
"""The correlation is at most so many times what the classes of a batch by itself show of it."""
STEPS, PRIOR_WEIGHT, LEAST = 10, 0.03, 1e-8
"""Steps of expectation-maximisation, samples per class that are there beforehand, the least probability."""
MIXED, ALIKE = 0.5, 0.7
"""Labels are not in runs where less than so much is made of their correlation, and samples count as so much
or more."""
REMEMBERED = 16.0
"""Samples that the class frequencies of earlier small batches stand for."""

CLASSES, CLASS_SAMPLES = "classes", "class_samples"
LATELY, LATELY_SOURCE = "recent_classes", "recent_source_classes"
LATELY_SAMPLES = "recent_class_samples"
CORRELATION, PRIOR = "correlation", "class_prior"


def with_classes(
    seen: Tensors, p: Tensor, source: Callable[[], Tensor | None] | None = None
) -> Tensors:
    """What is known after a batch of predictions (samples, classes): how correlated the labels are.

    A model that is wrong about a new kind of image may also prefer a class. So the `source` model is asked
    whenever the labels look correlated: only classes that both prefer count.
    """
    size, batch = len(p), _shares(p)
    if CLASSES not in seen:
        zero = p.new_zeros(())
        told = seen.get(RUNS, zero)  # runs that were noticed otherwise
        return {
            **seen,
            CLASSES: torch.lerp(batch, torch.full_like(batch, 1 / len(batch)), told),
            CLASS_SAMPLES: zero + size,
            LATELY: batch,
            LATELY_SOURCE: batch,
            LATELY_SAMPLES: zero + min(size, RECENT),
            CORRELATION: seen.get(CORRELATION, zero),
            PRIOR: torch.full_like(batch, 1 / len(batch)),
            RUNS: told,
            INDEPENDENT: seen.get(INDEPENDENT, zero + 1),
        }
    all_classes, samples, before = seen[CLASSES], seen[CLASS_SAMPLES], seen[LATELY_SAMPLES]
    enough = size >= RECENT
    share = torch.ones_like(before) if enough else size / (size + before)
    recent = torch.lerp(seen[LATELY], batch, share)
    together = torch.lerp(all_classes, batch, size / (size + samples))
    variance = (together * (1 - together)).sum().clamp_min(1e-6)
    found = (recent - all_classes).square().sum() / variance
    theirs = batch
    looks_correlated = bool(found > NOTICED)
    if looks_correlated and source is not None and (asked := source()) is not None:
        theirs = _shares(asked)
    recent_source = torch.lerp(seen[LATELY_SOURCE], theirs, share)
    if looks_correlated:
        both = (recent - all_classes) * (recent_source - all_classes)
        found = (both.sum() / variance).clamp_min(0)
    weight = SMOOTHING if enough else size / (size + 3 * RECENT)
    most = _allowed(recent, size if enough else size + 2 * RECENT)
    found = torch.minimum(found, most)
    correlation = torch.minimum(torch.lerp(seen[CORRELATION], found, weight), most)
    many = float(size) if enough else (before + size).clamp(max=RECENT)
    varied = many * torch.maximum(correlation, found)
    return {
        **seen,
        CLASSES: together,
        CLASS_SAMPLES: (samples + size).clamp(max=WINDOW),
        LATELY: recent,
        LATELY_SOURCE: recent_source,
        LATELY_SAMPLES: (before + size).clamp(max=RECENT),
        CORRELATION: correlation,
        RUNS: strength_of(correlation),
        INDEPENDENT: (CERTAIN / varied.clamp_min(1e-9)).clamp(max=1),
    }


def _shares(p: Tensor) -> Tensor:
    """The shares of the predicted classes."""
    return torch.nn.functional.one_hot(p.argmax(-1), p.shape[-1]).to(p.dtype).mean(0)


def strength_of(correlation: Tensor) -> Tensor:
    """How far a correlation is acted upon: 0 for labels that may be independent, 1 for runs of a class."""
    return ((correlation - NOTICED) / (STRONG - NOTICED)).clamp(0, 1)


def acted_upon(seen: Tensors) -> float:
    """How far outputs follow the classes of their batch: by the correlation, in full where it is strong."""
    if CORRELATION not in seen:
        return 0.0
    correlation = seen[CORRELATION]
    return float(torch.maximum(correlation, strength_of(correlation)))


def shown_by(p: Tensor) -> float:
    """How far the predictions of one batch, by themselves, look like labels in runs, 0 to 1."""
    return float(_allowed(_shares(p), len(p))) if len(p) > 1 else 0.0


def in_runs(seen: Tensors, p: Tensor, source: Tensor) -> bool | None:
    """Whether the labels of a batch come in runs, by what was known before and its predictions.

    None where it cannot be told yet: few classes in a first batch may be all that a source knows that is
    wrong about the images, or all that there are.
    """
    if CLASSES in seen:
        seen = with_classes(seen, p, lambda: source)
    if acted_upon(seen) >= MIXED:
        return True
    if CLASS_SAMPLES in seen and float(seen[CLASS_SAMPLES]) >= 2 * len(p):
        return float(seen[INDEPENDENT]) < ALIKE
    return None if shown_by(source) >= MIXED else False


def _allowed(shares: Tensor, samples: float) -> Tensor:
    """The most that the correlation may be, by the shares of the classes among so many samples.

    Where these spread over all classes, they are not in runs, whatever the stream looked like before: the
    chance that two samples have one class (Simpson's index) is that of classes that are all alike.
    """
    pairs = (shares.square().sum() - 1 / samples) / (1 - 1 / samples)
    even = 1 / len(shares)
    return (SPREAD * (pairs - even) / (1 - even)).clamp(0, 1)


def corrected(seen: Tensors, logits: Tensor, p: Tensor) -> tuple[Tensors, Tensor]:
    """The logits with the class frequencies of the batch, as far as labels are correlated.

    The logarithm of the frequencies belongs to that of the probabilities `p`. Where labels are independent
    the logits are returned as they are, bit for bit.
    """
    strength = strength_of(seen[CORRELATION])
    log_p = p.clamp_min(LEAST).log()
    classes = p.shape[-1]
    remembered = 0.0 if len(p) >= RECENT else REMEMBERED
    earlier = seen[PRIOR] * remembered + PRIOR_WEIGHT
    prior = seen[PRIOR] if remembered else torch.full_like(seen[PRIOR], 1 / classes)
    finite = log_p.isfinite().all(-1, keepdim=True)  # any other says nothing of the rest
    for _ in range(STEPS):
        responsible = torch.where(finite, (log_p + prior.log()).softmax(-1), 0).sum(0) + earlier
        prior = responsible / responsible.sum()
    new = log_p + strength * (prior * classes).log()
    logits = torch.where(strength > 0, new.to(logits.dtype), logits)
    return {**seen, PRIOR: prior}, logits
