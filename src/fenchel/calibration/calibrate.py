"""`fenchel.calibrate`: settings for one model, from images of its source."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from fenchel.adapters import METHODS
from fenchel.api import LEARNING_RATE, as_loss, known_input_range
from fenchel.calibration.shifting import Shifting
from fenchel.calibration.streams import ShiftedStreams
from fenchel.calibration.trials import Axis, Walk
from fenchel.files import tensors_digest
from fenchel.losses import Loss
from fenchel.methods import moves_parameters
from fenchel.methods.calibrated import Calibration
from fenchel.methods.importance import fisher
from fenchel.methods.protected import Protected
from fenchel.names import parse_spec

BUDGET, LENGTH = 10, 1000
BY_BATCH = {"statistics": "batch", "optimizer": "sgd", "sharpness": None, "longest": 0.04}
"""The protected method under the statistics of the batch: bounds that only a rate far too high meets."""


def calibrate(
    model: nn.Module,
    trained_with: Loss | str | nn.Module | Callable[..., Tensor],
    source_images: Tensor,
    labels: Tensor | None = None,
    *,
    method: str = "protected",
    batch_size: int = 100,
    trials: int = BUDGET,
    length: int = LENGTH,
    input_range: tuple[float, float] | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    seed: int = 0,
    advance: Callable[[int, int], object] | None = None,
    **settings: Any,
) -> Calibration:
    """Choose rate and temperature for adapting `model`, on images of its source that are shifted here.

    model: as for `adapt`; it is not modified.
    trained_with: the loss it was trained with, as for `adapt`.
    source_images: a few hundred samples, as the model takes them.
    labels: their classes. Without labels the model's own predictions on them take their place.
    method: the method that is calibrated. Of `protected` statistics, step and temperature are chosen, of any
        other method the learning rate and the temperature.
    batch_size: that of the stream to come.
    trials: how many settings are tried at most; each is one run over six shifts.
    length: how many images such a run has per shift. Fewer source images come several times, shifted anew.
    input_range: the range of the pixels, or `mean` and `std` by which they were normalised. Not needed for
        images in [0, 1], nor for models that know it.
    advance: called after every run over a shift, with the number of runs so far and the most there will be.
    settings: other arguments of `adapt`, such as `optimizer=` or `logits=`; they are not chosen.

    The shifts are none of the fifteen test corruptions (`fenchel.calibration.SHIFTS`). The settings of the
    result are used by `fenchel.adapt(model, trained_with=..., settings=calibration)`.

    >>> import fenchel, torch
    >>> network = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)).eval()
    >>> images = torch.randn(64, 4)
    >>> found = fenchel.calibrate(network, "cross-entropy", images, batch_size=64, trials=1, length=64)
    >>> adapted = fenchel.adapt(network, trained_with="cross-entropy", settings=found)
    """
    loss = as_loss(trained_with)
    if loss is None:
        raise ValueError(
            "calibrating needs the loss the model was trained with; got None. Pass trained_with=, for "
            "example trained_with='cross-entropy'."
        )
    if trials < 1:
        raise ValueError(f"trials must be a whole number of at least 1; got {trials!r}.")
    name, _ = parse_spec(method)
    if not moves_parameters(name):
        raise ValueError(f"method {name!r} moves no parameters, so there is nothing to calibrate.")
    if input_range is None and mean is None:
        input_range = known_input_range(model)
    shifting = Shifting.of(source_images, input_range=input_range, mean=mean, std=std)
    known = METHODS[name].options()
    important = fisher(model, source_images) if "fisher" in known else None
    needed: dict[str, Any] = {} if important is None else {"fisher": important}
    if "input_range" in known and shifting.pixels is not None:
        needed |= {key: getattr(shifting.pixels, key) for key in ("input_range", "mean", "std")}
    streams = ShiftedStreams(
        model=model,
        arguments={"trained_with": loss, "method": method, "seed": seed, **needed, **settings},
        shifting=shifting,
        samples=source_images,
        labels=labels,
        batch_size=batch_size,
        length=length,
        seed=seed,
    )
    walks = [
        Walk(streams.error_of, way.axes, way.fixed, budget=budget)
        for way, budget in _shared_out(trials, _ways(name, settings))
    ]
    streams.tell(trials, advance)
    best = min((walk.best() for walk in walks), key=lambda trial: trial.error)
    tried = [trial for walk in walks for trial in walk.trials]
    features = streams.feature_moments()
    return Calibration(
        method=method,
        settings=best.settings,
        level="images" if labels is None else "labels",
        thresholds=streams.thresholds(best.settings),
        feature_mean=None if features is None else features[0],
        feature_variance=None if features is None else features[1],
        fisher=important,
        protocol={
            "images": len(source_images),
            "batch_size": batch_size,
            "length": length,
            "shifts": list(shifting.kinds),
            "seed": seed,
            "trials": [{**trial.settings, "error_percent": trial.error} for trial in tried],
            "loss": repr(loss),
            "model_digest": tensors_digest(model.state_dict()),
        },
    )


@dataclass(frozen=True)
class _Way:
    """What is varied, from which start on, and what stays as it is."""

    axes: Sequence[Axis]
    fixed: dict[str, Any] = field(default_factory=dict)


def _ways(method: str, settings: Mapping[str, Any]) -> list[_Way]:
    """The ways to adapt with a method, of which the better is taken; what the user says is not varied.

    The protected method has two: statistics that suit the batch, under which it moves little, and those of
    the batch, under which it may move far. Streams of large and varied batches want the second.
    """
    warm = Axis(name="temperature", start=1.0, factor=2, lowest=0.25, highest=8)
    kind = METHODS[method]
    if kind is Protected:
        start = Protected.longest
        length = Axis(name="longest", start=start, factor=2, lowest=start / 8, highest=8 * start)
        found = [_Way((length, warm)), _Way((_rates(0.01), warm), BY_BATCH)]
    else:
        found = [_Way((_rates(kind.defaults.get("learning_rate", LEARNING_RATE)), warm))]
    ways = [
        _Way([axis for axis in way.axes if axis.name not in settings], way.fixed)
        for way in found
        if not way.fixed.keys() & settings.keys()
    ]
    if not any(way.axes for way in ways):
        raise ValueError("nothing is left to choose: rate and temperature are both given.")
    return ways


def _rates(start: float) -> Axis:
    return Axis(name="learning_rate", start=start, factor=math.sqrt(10), lowest=1e-5, highest=0.3)


def _shared_out(trials: int, ways: Sequence[_Way]) -> list[tuple[_Way, int]]:
    """Every way with its part of the budget; the first has what is left over."""
    parts = [trials // len(ways) + (place < trials % len(ways)) for place in range(len(ways))]
    return [(way, part) for way, part in zip(ways, parts, strict=True) if part]
