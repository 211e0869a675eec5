"""What a network was fed, why it failed on it, and what to try: one line instead of a traceback.

The cause is found by experiment. The first sample is fed again in other forms (channels in front, other
channels, another size, floats in [0, 1]), and the first form on which the network runs is the advice.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fenchel.plugins import shown

SIDES = (
    *(8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 112, 128, 160, 192, 224),
    *(240, 256, 288, 299, 320, 336, 384, 448, 512),
)
"""Sides of square images on which a network is tried."""

FAR = 30.0
"""Normalised pixels lie within a few deviations of 0; beyond this, an input is on another scale."""

UNIT = 3.0
"""Pixels without a negative value whose largest is beyond this are not in [0, 1]."""

Advice = Mapping[str, str]
"""What to try, by the name of a change; `{side}` is the size that works."""

FOR_IMAGES: Advice = {
    "layout": "Move the channels in front of height and width: images.transpose(0, 3, 1, 2)",
    "integers": "Give floats in [0, 1], images / 255, or save bytes (uint8) of shape (N, H, W, C)",
    "range": "Divide by 255, or save bytes (uint8); pass mean= and std= for another scale",
    "to gray": "The model takes grey images: pass mode='L' (arrays: average the channels)",
    "to colour": "The model takes colour images: pass mode='RGB' (arrays: repeat the channel)",
    "size": "It runs on images of {side} x {side}: pass size={side} (arrays: resize them)",
}
"""For images that a user read from files or arrays."""

FOR_DATA: Advice = {
    **FOR_IMAGES,
    "to gray": "The model takes grey images: choose data of one channel, or average them in the network",
    "to colour": "The model takes colour images: choose data of three channels (digits: `:digits=True` "
    "behind the name of the data set), or repeat the channel in the network",
    "size": "It runs on images of {side} x {side}: choose data of that size, or resize in the network",
}
"""For images of a data set, which have the size and the channels that they have."""

_BY_SHAPE = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)
"""Errors that an input of another form may cure; a NameError is a mistake in the code."""


class ModelFailure(ValueError):
    """The network failed on what it was fed; the message is one line."""


def explain_failure(
    error: Exception, inputs: Tensor, network: nn.Module, *, advice: Advice = FOR_IMAGES
) -> ModelFailure:
    """Why `network` raised `error` on `inputs`: what it was fed, what it said, and what to try."""
    if isinstance(error, ModelFailure):
        return error
    said = str(error).strip().partition("\n")[0].strip().removesuffix(".")
    place = _place(error)
    return ModelFailure(
        f"the model failed on {describe(inputs)}. It said{place}: {type(error).__name__}: {said}. "
        f"{_what_to_try(error, inputs, network, advice)}."
    )


def blamed(
    error: Exception, inputs: Tensor, network: nn.Module, *, advice: Advice = FOR_IMAGES
) -> Exception:
    """The failure of the network, if it fails on `inputs` alone as well; else the error as it is."""
    alone = _failure(network, inputs)
    return error if alone is None else explain_failure(alone, inputs, network, advice=advice)


def try_out(network: nn.Module, inputs: Tensor, *, advice: Advice = FOR_IMAGES) -> Any:
    """What the network returns for `inputs` in evaluation mode; it is left as it was.

    Raises:
        ModelFailure: it failed.
    """
    try:
        with _evaluating(network):
            return network(inputs)
    except Exception as error:
        raise explain_failure(error, inputs, network, advice=advice) from error


def suspicious_inputs(inputs: Tensor) -> str | None:
    """A sentence about images on which a network runs, but probably not as it was trained; or None.

    >>> suspicious_inputs(torch.rand(4, 3, 32, 32)) is None
    True
    >>> print(suspicious_inputs(torch.full((4, 3, 8, 8), 200.0)))
    the images are float32 of shape (4, 3, 8, 8) with values from 200 to 200, while networks take [0, 1] \
or normalised pixels. Divide by 255, or save bytes (uint8); pass mean= and std= for another scale.
    """
    if inputs.ndim < 3 or inputs.numel() == 0:
        return None
    if not inputs.is_floating_point():
        rule, change = "networks take floats", "integers"
    elif _channels_are_last(inputs):
        rule, change = "networks take (N, channels, height, width)", "layout"
    elif _off_scale(inputs):
        rule, change = "networks take [0, 1] or normalised pixels", "range"
    else:
        return None
    return f"the images are {describe(inputs)}, while {rule}. {FOR_IMAGES[change]}."


def describe(inputs: Tensor) -> str:
    """Type, shape and range of a tensor, in a few words."""
    kind = str(inputs.dtype).removeprefix("torch.")
    shape = f"{kind} of shape {tuple(inputs.shape)}"
    low, high = _range(inputs)
    return f"{shape} with values from {low:.4g} to {high:.4g}" if low <= high else shape


def _what_to_try(error: Exception, inputs: Tensor, network: nn.Module, advice: Advice) -> str:
    if isinstance(error, _BY_SHAPE) and inputs.ndim >= 3:
        for changes, changed in _other_forms(inputs[:1]):
            if _failure(network, changed) is None:
                off_scale = inputs.is_floating_point() and _off_scale(inputs)
                named = dict.fromkeys([*changes, *(["range"] if off_scale else [])])
                return ". ".join(advice[name].format(side=changed.shape[-1]) for name in named)
    if isinstance(error, _BY_SHAPE) and (takes := _first_layer(network)):
        return f"Its first layer, {takes}: check the shape of what it is fed"
    return "Mend the network, or see FENCHEL_DEBUG=1 for the traceback"


def _other_forms(sample: Tensor) -> Iterator[tuple[tuple[str, ...], Tensor]]:
    """One sample in other forms, with the changes that lead there: the fewest changes first."""
    changes = _changes(sample)
    several = [
        names for count in range(1, len(changes) + 1) for names in combinations(changes, count)
    ]
    for names in several:
        yield names, _changed(sample, changes, names)
    for names in [(), *several]:
        other = _changed(sample, changes, names)
        if other.ndim == 4 and other.is_floating_point():
            for side in _sides(other.shape[-1]):
                yield (*names, "size"), functional.interpolate(other, size=(side, side))


def _changes(sample: Tensor) -> dict[str, Callable[[Tensor], Tensor]]:
    """The changes that make sense for images of this kind."""
    found: dict[str, Callable[[Tensor], Tensor]] = {}
    channels_last = _channels_are_last(sample)
    if not sample.is_floating_point():
        found["integers"] = lambda x: x.float() / 255
    elif _off_scale(sample):
        found["range"] = lambda x: x / 255
    if channels_last:
        found["layout"] = lambda x: x.movedim(-1, 1)
    channels = sample.shape[-1] if channels_last else sample.shape[1]
    if sample.ndim == 4 and channels == 1:
        found["to colour"] = lambda x: x.expand(-1, 3, -1, -1)
    elif sample.ndim == 4 and channels == 3:
        found["to gray"] = lambda x: x.mean(1, keepdim=True)
    return found


def _changed(
    sample: Tensor, changes: Mapping[str, Callable[[Tensor], Tensor]], names: tuple[str, ...]
) -> Tensor:
    try:
        for name in names:
            sample = changes[name](sample)
    except RuntimeError:  # such as the mean of integers
        return sample
    return sample


def _sides(side: int) -> list[int]:
    """Larger ones first, from the next one on: a network that reduces too far takes any of them."""
    return [s for s in SIDES if s > side] + [s for s in reversed(SIDES) if s < side]


def _failure(network: nn.Module, inputs: Tensor) -> Exception | None:
    try:
        with _evaluating(network):
            network(inputs)
    except Exception as error:
        return error
    return None


@contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients or a trace in the random draws; every module's mode is put back."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def _channels_are_last(inputs: Tensor) -> bool:
    return inputs.ndim == 4 and inputs.shape[-1] in (1, 3) and inputs.shape[1] not in (1, 3, 4)


def _off_scale(inputs: Tensor) -> bool:
    low, high = _range(inputs)
    return (low >= 0 and high > UNIT) or max(-low, high) > FAR


def _range(inputs: Tensor) -> tuple[float, float]:
    """The smallest and the largest finite value; (inf, -inf) if there is none."""
    finite = inputs[inputs.isfinite()] if inputs.is_floating_point() else inputs
    if finite.numel() == 0:
        return float("inf"), float("-inf")
    return float(finite.min()), float(finite.max())


def _first_layer(network: nn.Module) -> str:
    """What the first layer of a known kind takes, in a few words."""
    for module in network.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            return f"a {type(module).__name__}, takes {module.in_channels} channels"
        if isinstance(module, nn.Linear):
            return f"a Linear, takes {module.in_features} features"
        if isinstance(module, nn.Embedding):
            return "an Embedding, takes whole numbers"
    return ""


def _place(error: Exception) -> str:
    """Where the network's own code failed: the deepest line within its call that is not torch's or ours."""
    theirs, ours = Path(torch.__file__).parent, Path(__file__).parents[1]
    frames = [
        (Path(frame.f_code.co_filename), line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    called = next((n for n, (path, _) in enumerate(frames) if path.is_relative_to(theirs)), None)
    own = [
        (path, line)
        for path, line in frames[called:]
        if path.is_file() and not (path.is_relative_to(theirs) or path.is_relative_to(ours))
    ]
    return f" ({shown(own[-1][0])}, line {own[-1][1]})" if own and called is not None else ""
