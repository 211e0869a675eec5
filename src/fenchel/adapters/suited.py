"""Statistics that suit the batch: the stream's where a layer's input has moved, the source's where not.

Every batch-normalisation layer keeps running statistics of the stream. A batch enters them by its share of
the samples that they stand for: all of them for a first batch, few after many. What they stand for is
forgotten when the stream changes, which the variances in the first layer tell: other classes leave them
nearly as they are, another kind of image does not. Samples of correlated labels count as fewer, since they
repeat one another.

A layer is normalised by a mix of the two: source + shift * (stream - source). With d the squared distance
of the stream's statistics from the source's, relative to the source's variance, and b the share of the
variance that lies between images,

    shift = (1 - c / d) / (1 - c / max(FAR, 2 c)),   c = TOLERANCE + CAUTION * b / samples

cut off at 0 and 1 (James and Stein's estimate, with a tolerance): what is near the source, or known from
few images alone, is the source's; what is far is the batch's. Where an image has one value per channel and
no map, b is 1 to begin with, and a class may be a whole variance away from the others, however many samples
show it: c is larger by as much where labels come in runs, or may do for all that few samples tell.

Blur and low contrast make all features smaller, in later layers by so little that each seems to be the
source's, while together they mislead the network. So where the variances of the first layers have fallen,
nothing is tolerated. Noise makes them grow, and there the source's variances in later layers are better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fenchel.adapters.group import present_shares, rows_of_all
from fenchel.adapters.mixing import Moments, moments, through_batch
from fenchel.adapters.normalization import batch_norm_layers
from fenchel.adapters.state import Tensors, all_finite, chosen

TOLERANCE = 0.035
"""A squared distance that is no shift: networks do not mind it, and test images have it too."""
CAUTION = 4.0
"""How many times what chance alone makes of so many samples is no shift either."""
FAR = 1.0
"""A squared distance beyond which nothing of the source's statistics is left."""
MEMORY = 300.0
"""Samples that running statistics stand for at most, so that a slow drift is followed."""
CHANGE, FORGETTING, NOISE = 0.03, 30.0, 1.5
"""A distance in the first layer's variances from which on the past is forgotten, and how fast. What chance
makes of so many samples, NOISE / samples, is taken off before."""
VALUES = 3.0
"""The same for either side where an image has one value and no map: variances are known from few values."""
RECENT = 64.0
"""Samples whose variances are compared with the past: more than one small batch."""
FLOOR = 0.03
"""Channels with less than this share of the layer's mean variance count as having that much."""
UNMOVED, MOVED = 0.1, 0.18
"""The mean shift of all layers up to which a stream is the source's, and from which on it is another."""
BETWEEN = 0.2
"""The share of the variance between images, until a batch of several shows it."""
PALE, FADED = 0.2, 0.25
"""By how much logarithms of variances fall before images count as faded, and before they do so fully."""
DEEPER = 0.7
"""What a layer counts in that, of the layer before it."""

SAMPLES, RECENT_SAMPLES = "samples", "recent_samples"
RECENT_MEAN, RECENT_VARIANCE = "recent_mean", "recent_variance"
CHANGED, INDEPENDENT, SHIFT = "changed", "independent", "shift"
RUNS = "runs"
"""How far labels come in runs, 0 to 1."""
TRUST = "trust"
"""How much of the shift is made use of: 1 unless a trial of the statistics has failed."""
KEEN = "keen"
"""Whether no distance is tolerated, 0 or 1: 0 unless a trial has shown that such statistics serve better."""
_MEAN, _VARIANCE = "running_mean", "running_var"


def suited_layers(model: nn.Module) -> dict[str, _BatchNorm]:
    """The layers whose statistics can be suited to a batch: those that have the source's."""
    return {
        f"{name}." if name else "": layer
        for name, layer in batch_norm_layers(model).items()
        if layer.running_mean is not None and layer.running_var is not None
    }


@dataclass
class Meeting:
    """What a pass makes of a batch: the statistics it is normalised by, and what is known after it."""

    before: Tensors
    statistics: Tensors = field(default_factory=dict)
    seen: Tensors = field(default_factory=dict)
    weight: Tensor | None = None
    """How much the batch counts beside what was seen before."""
    assumed: Tensors = field(default_factory=dict)
    """What was taken for known, having never been seen."""
    shifts: list[Tensor] = field(default_factory=list)
    """That of every layer so far."""
    gain: Tensor | float = 0.0
    """The logarithm of the stream's over the source's variances: a mean over the layers so far, of which the
    first count most, and a zero that counts like the first."""
    layers: float = 1.0
    """What all of them count together."""

    def known(self, name: str, otherwise: Tensor) -> Tensor:
        """What was known before the batch."""
        if name not in self.before:
            self.assumed[name] = otherwise
        return self.before.get(name, otherwise)

    def faded(self, stream: Tensor, source: Tensor, floor: Tensor) -> Tensor:
        """How certain it is, 0 to 1, that images lost contrast or detail, after one more layer."""
        counts = DEEPER ** len(self.shifts)
        self.layers += counts
        latest = ((stream + floor) / (source + floor)).log().mean()
        self.gain = self.gain + (latest - self.gain) * (counts / self.layers)
        return ((-self.gain - PALE) / (FADED - PALE)).clamp(0, 1)


class Suiting:
    """The suited layers of a skeleton. In `meeting` a pass lets its batch decide; else nothing changes."""

    def __init__(self, twin: nn.Module, source: Mapping[str, Tensor]) -> None:
        self._source = source
        self._meeting: Meeting | None = None
        for prefix, layer in suited_layers(twin).items():
            layer.register_forward_pre_hook(partial(self._before_layer, prefix))

    @contextmanager
    def meeting(self, before: Tensors) -> Iterator[Meeting]:
        """In the block, one pass over a batch that enters the statistics; `before` is what was seen."""
        self._meeting = met = Meeting(before)
        try:
            yield met
        finally:
            self._meeting = None
        if met.shifts:
            met.seen[SHIFT] = torch.stack(met.shifts).mean()

    def _before_layer(
        self, prefix: str, layer: _BatchNorm, inputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...] | None:
        met = self._meeting
        if met is None or f"{prefix}{_MEAN}" in met.statistics:
            return None  # nothing is decided, or a layer runs a second time in one pass
        first, *others = inputs
        with torch.no_grad():
            share, stream_mean = self._decided(met, prefix, layer, first.detach())
        # functional_call puts the layer's own tensors back.
        layer.running_mean = met.statistics[f"{prefix}{_MEAN}"]
        layer.running_var = met.statistics[f"{prefix}{_VARIANCE}"]
        return through_batch(layer, first, stream_mean, share), *others

    def _decided(
        self, met: Meeting, prefix: str, layer: _BatchNorm, x: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Enter the batch into a layer's statistics; its share in those used, and the stream's mean."""
        source_mean = self._source[f"{prefix}{_MEAN}"]
        source_variance = self._source[f"{prefix}{_VARIANCE}"]
        mean, variance = moments(x, source_mean.dtype)
        size = rows_of_all(x)
        old_mean = met.known(f"{prefix}{_MEAN}", source_mean)
        old_variance = met.known(f"{prefix}{_VARIANCE}", source_variance)
        maps = x.shape[2:].numel() > 1
        if met.weight is None:
            _count_in(met, size, maps, (mean, variance), (old_mean, old_variance), layer.eps)
        weight, samples = cast(Tensor, met.weight), met.seen[SAMPLES]
        stream_mean, stream_variance = _joined((old_mean, old_variance), (mean, variance), weight)
        floor = layer.eps + FLOOR * source_variance.mean()
        between = met.known(f"{prefix}between", weight.new_tensor(BETWEEN if maps else 1.0))
        if size > 1:
            images = x.to(mean.dtype).flatten(2).mean(-1) if x.ndim > 2 else x.to(mean.dtype)
            latest = (_variance(images) / (source_variance + floor)).mean()
            between = torch.lerp(between, latest, min(1.0, size / (2 * RECENT)))
        moved = ((stream_mean - source_mean).square() / (source_variance + floor)).mean()
        distance = moved + relative(stream_variance, source_variance, floor) / 2
        faded = met.faded(stream_variance, source_variance, floor)
        zero = torch.zeros_like(faded)
        keen = torch.maximum(faded, met.known(KEEN, zero)) * (1 - met.known(RUNS, zero))
        chance = TOLERANCE * (1 - keen) + CAUTION * between / samples
        if not maps:
            in_runs = torch.maximum(met.known(RUNS, zero), 1 - samples / RECENT)
            chance = chance + in_runs
        shift = shifted(distance, chance) * met.seen[TRUST]
        met.seen |= {
            f"{prefix}{_MEAN}": stream_mean,
            f"{prefix}{_VARIANCE}": stream_variance,
            f"{prefix}between": between,
        }
        met.shifts.append(shift)
        met.statistics |= {
            f"{prefix}{_MEAN}": torch.lerp(source_mean, stream_mean, shift),
            f"{prefix}{_VARIANCE}": torch.lerp(source_variance, stream_variance, shift),
        }
        return weight * shift, stream_mean


def _variance(images: Tensor) -> Tensor:
    """The variance of every column, over all that have a part of the batch."""
    shares = present_shares()
    if shares is None:
        return images.var(0)
    variance, mean = torch.var_mean(images, 0, correction=0)
    count = rows_of_all(images)
    return shares.moments(mean, variance)[1] * (count / (count - 1))


def _joined(old: Moments, new: Moments, weight: Tensor) -> Moments:
    """The mean and the variance of both together, of which `weight` is the share of the new."""
    apart = new[0] - old[0]
    between = weight * (1 - weight) * apart.square()
    return old[0] + weight * apart, torch.lerp(old[1], new[1], weight) + between


def _count_in(
    met: Meeting, size: int, maps: bool, batch: Moments, old: Moments, eps: float
) -> None:
    """Decide, in the first layer to run, how much the batch counts in all of them."""
    zero = batch[0].new_zeros(())
    samples, recent = met.known(SAMPLES, zero), met.known(RECENT_SAMPLES, zero)
    weight = size / (size + recent.clamp(max=RECENT)) if size < RECENT else torch.ones_like(zero)
    earlier = (met.known(RECENT_MEAN, old[0]), met.known(RECENT_VARIANCE, old[1]))
    recent_mean, recent_variance = _joined(earlier, batch, weight)
    change = relative(recent_variance, old[1], eps + FLOOR * old[1].mean())
    by_chance = zero + NOISE / max(size, RECENT)
    if not maps:
        lately = (recent + size).clamp(max=max(size, RECENT))
        by_chance = VALUES * (1 / samples.clamp_min(1) + 1 / lately) + met.known(RUNS, zero)
    change = torch.where(samples > 0, change - by_chance, zero)
    kept = samples * torch.exp(-FORGETTING * (change - CHANGE).clamp_min(0))
    count = (size * met.known(INDEPENDENT, torch.ones_like(zero))).clamp_min(1)
    met.weight = count / (count + kept)
    trust, keen = met.known(TRUST, torch.ones_like(zero)), met.known(KEEN, zero)
    forgotten = kept < samples / 2  # else most of what is known is of the stream as it was tried
    met.seen |= {
        TRUST: torch.where(forgotten, torch.ones_like(zero), trust),
        KEEN: torch.where(forgotten, zero, keen),
        SAMPLES: (kept + count).clamp(max=MEMORY),
        RECENT_MEAN: recent_mean,
        RECENT_VARIANCE: recent_variance,
        RECENT_SAMPLES: (recent + size).clamp(max=RECENT),
        CHANGED: change,
    }


def relative(one: Tensor, other: Tensor, floor: Tensor | float) -> Tensor:
    """How far two variances are apart: about the mean of log(one / other)², and at most 4."""
    return 4 * ((one - other) / (one + other + 2 * floor)).square().mean()


def shifted(distance: Tensor, chance: Tensor) -> Tensor:
    """The share of the stream's statistics: 0 up to `chance`, 1 from `FAR` on, or twice the chance."""
    far = (2 * chance).clamp_min(FAR)
    return ((1 - chance / distance.clamp_min(1e-12)) / (1 - chance / far)).clamp(0, 1)


def has_moved(shift: Tensor) -> Tensor:
    """How certain it is that a stream is not the source's, 0 to 1, by the mean shift of its layers.

    A first layer or two may differ on images that the network knows well, as where training padded them.
    """
    return ((shift - UNMOVED) / (MOVED - UNMOVED)).clamp(0, 1)


def guarded(met: Meeting, statistics: Tensors, seen: Tensors) -> tuple[Tensors, Tensors]:
    """The statistics and what was seen after a batch, or as before where anything is not finite."""
    if not met.statistics:
        return statistics, seen
    fine = all_finite((*met.statistics.values(), *met.seen.values()))
    # A layer that did not run keeps what it had.
    return (
        {**statistics, **chosen(fine, met.statistics, statistics)},
        {**seen, **chosen(fine, met.seen, {**met.assumed, **seen})},
    )
