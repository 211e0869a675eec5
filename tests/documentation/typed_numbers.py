"""The table of numbers that were typed: the piece of a page, and the cell or value each is bound to."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from inspect import signature
from typing import Any

import torch
from documented_numbers import Cell, Typed, rows

from fenchel import models
from fenchel.adapters import monitor, suited, trial, watch
from fenchel.adapters.normalization import batch_norm_layers
from fenchel.adapters.seen import HORIZON
from fenchel.methods.protected import Protected
from fenchel.paper import PRESETS as PAPER
from fenchel.paper.gaussian_experiment import gaussian_settings
from fenchel.predict import Choices
from fenchel.predict.summary import WORSE
from fenchel.predict.tally import RARELY
from fenchel.report.significance import paired_bootstrap
from fenchel.train import PRESETS, TrainingRun

PERFORMANCE, TRAINING = "docs/performance.md", "docs/training.md"
PREDICTIONS = "docs/predictions.md"
SAFETY = "docs/safety.md"
SCALE = "docs/scale.md"
SECONDS_AN_IMAGE, STATE_MEGABYTES = 0.02, 0.1
"""What the calculation of docs/scale.md assumes."""
PROTECTED, LIMITS = Protected.options(), monitor.Thresholds()
POLY, SQUARED = "results/templates/poly.md", "results/templates/squared.md"


@cache
def parameters(name: str) -> int:
    """How many a network of ten classes has."""
    with torch.device("meta"):
        return sum(each.numel() for each in models.build(name).parameters())


def batch_norms(name: str) -> int:
    """How many layers of a network are batch normalisations."""
    with torch.device("meta"):
        return len(batch_norm_layers(models.build(name)))


def millions(name: str) -> Callable[[], float]:
    return lambda: parameters(name) / 1e6


def larger() -> float:
    """How many times as large the paper's network for CIFAR is."""
    return parameters("resnet26_wide") / parameters("resnet26")


def preset(name: str, key: str) -> Callable[[], float]:
    return lambda: getattr(PRESETS[name], key)


def step(memory: str, column: str) -> Cell:
    row = {"way": "full step", "freed_memory": memory}
    return Cell("benchmarks/results/step-imagenet.json", row, column)


def tuned(method: str, column: str) -> Cell:
    row = {"line": "CIFAR-10-C, tuned T", "method": method}
    return Cell("results/table-squared.csv", row, column)


def acting_rate() -> float:
    """To the conjugate of the squared loss a temperature is a rate times 1 / T²."""
    rate, temperature = (
        tuned("conjugate", key).value() for key in ("learning_rate", "temperature")
    )
    return rate / temperature**2


def lowest_rate_of_adam() -> float:
    """Of those that both the conjugate and the entropy of the PolyLoss source were tried with."""
    tried = [
        {
            float(row["learning_rate"])
            for row in rows("results/tuning.csv")
            if (row["source"], row["method"], row["optimizer"]) == ("poly", method, "adam")
        }
        for method in ("conjugate", "entropy")
    ]
    return min(tried[0] & tried[1])


def published(method: str) -> Any:
    """The paper's settings of a method with PolyLoss on CIFAR-10-C."""
    return PAPER["table-poly"].lines[0].runs[method]


def recipe(name: str, piece: str) -> Typed:
    """A row of the table of presets."""
    keys = ("epochs", "batch_size", "learning_rate", "momentum")[: piece.count("{")]
    return Typed(TRAINING, piece, [preset(name, key) for key in keys])


def smallest_crop() -> float:
    """Percent of the area."""
    return 100 * float(PRESETS["paper"].augmentation.partition("smallest=")[2])


def default(function: Callable[..., object], name: str) -> Callable[[], float]:
    return lambda: signature(function).parameters[name].default


def gaussians(name: str) -> Callable[[], float]:
    return lambda: getattr(gaussian_settings("cpu"), name)


def constant(value: float) -> Callable[[], float]:
    """No measurement: a choice, of the paper or of an experiment, that stands nowhere else."""
    return partial(float, value)


BOUND = [
    Typed(PERFORMANCE, "had {0.78} of the naive step", [step("returned", "of_naive_step")]),
    Typed(PERFORMANCE, "{0.72} with retained memory", [step("retained", "of_naive_step")]),
    Typed(TRAINING, "4 blocks each | {0.37} M", [millions("resnet26")]),
    Typed(TRAINING, "with GroupNorm | {0.37} M", [millions("resnet26_groupnorm")]),
    Typed(TRAINING, "| {17,444,682} |", [lambda: parameters("resnet26_wide")]),
    Typed(
        TRAINING,
        "for 28 to 32 px | {11.2} M, {23.5} M",
        [millions("resnet18_small"), millions("resnet50_small")],
    ),
    Typed(
        TRAINING,
        "its weights load | {11.7} M, {25.6} M",
        [millions("resnet18"), millions("resnet50")],
    ),
    Typed(
        TRAINING,
        "(imagenet.md)) | {25.6} M, {3.5} M, {4.7} M",
        [millions("resnet50_keras"), millions("mobilenet_v2"), millions("efficientnet_lite0")],
    ),
    Typed(TRAINING, "patches of 4 px | {2.7} M", [millions("vit_small")]),
    Typed(TRAINING, "for 8 px and up | {0.09} M", [millions("digit_network")]),
    Typed("results/templates/results.md", "{47} times as large", [larger]),
    Typed("results/templates/meta.md", "{47} times as large", [larger]),
    Typed(POLY, "{47} times as small", [larger]),
    # A calculation from what it assumes.
    Typed(SCALE, "if *t* is {20} ms", [lambda: 1000 * SECONDS_AN_IMAGE]),
    Typed(
        SCALE,
        "1,000 × {0.02} = 20 | 64, for 100,000,000 × {0.02} / 3,600 / 64 = {8.7} hours",
        [
            constant(SECONDS_AN_IMAGE),
            constant(SECONDS_AN_IMAGE),
            lambda: 1e8 * SECONDS_AN_IMAGE / 3600 / 64,
        ],
    ),
    Typed(SCALE, "64 × 100 kB = {6.4} MB", [lambda: 64 * STATE_MEGABYTES]),
    Typed(SCALE, "1,000 / 32 × 100 kB = {3.1} MB", [lambda: 1000 / 32 * STATE_MEGABYTES]),
    Typed(
        SCALE,
        "at {0.1} ms per message a batch costs {16} ms more",
        [constant(0.1), lambda: 3 * batch_norms("resnet50") * 0.1],
    ),
    # Settings that are told in a sentence or a table of their own.
    recipe("paper", "CIFAR, as published | {200} | {256} | SGD {0.1}, momentum {0.9} | cosine"),
    recipe("digits", "as published | {50} | {256} | SGD {0.01}, no momentum"),
    recipe("cpu", "natural images on a CPU | {20} | {128} | SGD {0.2}, Nesterov {0.9} |"),
    recipe("cpu-digits", "digits on a CPU | {10} | {128} | SGD {0.1}, Nesterov {0.9} |"),
    recipe("embedded", "scikit-learn | {30} | {64} | SGD {0.1}, Nesterov {0.9} |"),
    recipe("linear", "vectors | {20} | {100} | SGD {0.1}, Nesterov {0.9} |"),
    Typed(TRAINING, "crop of {20}-{100} % of the area", [smallest_crop, constant(100)]),
    Typed(TRAINING, "every {30} seconds", [default(TrainingRun, "save_seconds")]),
    Typed("docs/reports.md", "{10,000} times", [default(paired_bootstrap, "resamples")]),
    Typed(
        "docs/reports.md",
        "({0.01} for 100 steps, {0.02} for {50})",
        [constant(0.01), gaussians("learning_rate"), gaussians("iterations")],
    ),
    Typed(
        PREDICTIONS,
        "below {0.6} of the source's with less mutual information than the source, or below {0.7} of",
        [lambda: LIMITS.collapsed, lambda: LIMITS.collapsed_unmoved],
    ),
    Typed(
        PREDICTIONS,
        "below {0.8} of the source's or {0.85} of that without updates, or {0.3} nats",
        [
            lambda: LIMITS.suspect,
            lambda: LIMITS.suspect_unmoved,
            lambda: LIMITS.lost_information,
        ],
    ),
    Typed(PREDICTIONS, "over the last {500} compared", [lambda: monitor.WINDOW]),
    Typed(PREDICTIONS, "those of the latest {4,096} images", [lambda: HORIZON]),
    Typed(PREDICTIONS, "exact test at {1} %", [lambda: 100 * RARELY]),
    Typed(PREDICTIONS, "or at least {2} points", [lambda: WORSE]),
    Typed(SAFETY, "a distance of {1} on", [lambda: suited.FAR]),
    Typed(SAFETY, "stand for, {300} at most", [lambda: suited.MEMORY]),
    Typed(SAFETY, "at most {0.3} % of the length", [lambda: 100 * PROTECTED["longest"]]),
    Typed(SAFETY, "rate, {0.01} with Adam", [lambda: Protected.defaults["learning_rate"]]),
    Typed(SAFETY, "of fewer than {64} images move", [lambda: PROTECTED["full"]]),
    Typed(SAFETY, "go back {2} % of their way", [lambda: 100 * PROTECTED["pull"]]),
    Typed(
        SAFETY,
        "within {15} % of the source",
        [lambda: 100 * PROTECTED["longest"] / PROTECTED["pull"]],
    ),
    Typed(SAFETY, "On the first {64} images", [lambda: monitor.Monitor.first]),
    Typed(SAFETY, "has less than {0.6} of its entropy", [lambda: monitor.SURER]),
    Typed(SAFETY, "has less than {95} % of the source's, by more", [lambda: 100 * trial.LEAST]),
    Typed(SAFETY, "({0.5} nats over the square root", [lambda: trial.CHANCE]),
    Typed(
        SAFETY,
        "of the source's ([the trial](#a-trial-by-shifted-images)) | below {95} % |",
        [lambda: 100 * trial.LEAST],
    ),
    Typed(SAFETY, "Where that has {1} % more", [lambda: 100 * (trial.MORE - 1)]),
    Typed(SAFETY, "they are then still {15} % away", [lambda: 100 * watch.NEAR]),
    Typed(SAFETY, "leads over more than {5} % of the length", [lambda: 100 * watch.LEAP]),
    Typed(
        SAFETY,
        "parameters farther than {15} % of their length",
        [lambda: 100 * PROTECTED["longest"] / PROTECTED["pull"]],
    ),
    Typed(PREDICTIONS, "on the first {64} images", [lambda: monitor.Monitor.first]),
    Typed(SAFETY, "last {500} compared", [lambda: monitor.WINDOW]),
    Typed(
        SAFETY,
        "of the source's | below {80} % | below {60} %",
        [lambda: 100 * LIMITS.suspect, lambda: 100 * LIMITS.collapsed],
    ),
    Typed(
        SAFETY,
        "unmoved network's | below {85} % | below {70} %",
        [lambda: 100 * LIMITS.suspect_unmoved, lambda: 100 * LIMITS.collapsed_unmoved],
    ),
    Typed(SAFETY, "below the source's | {0.3} |", [lambda: LIMITS.lost_information]),
    Typed(SAFETY, "like the training images | {0.085} |", [lambda: LIMITS.lost_by_statistics]),
    Typed(SAFETY, "does not see it | {0.4} |", [lambda: LIMITS.mixed_up]),
    Typed(PREDICTIONS, "saved every {10} batches", [default(Choices, "save_every")]),
    Typed("docs/data.md", "used {0.05} to {0.1}, where", [constant(0.05), constant(0.1)]),
    Typed(POLY, "and so does {0.001}.", [lowest_rate_of_adam]),
    Typed(POLY, "settings include {0.005}.", [lambda: published("memo").learning_rate]),
    Typed(SQUARED, "Here {0.2} sharpens", [tuned("entropy", "temperature")]),
    Typed(SQUARED, "tuned conjugate's {0.001} was", [tuned("conjugate", "learning_rate")]),
    Typed(SQUARED, "at temperature {0.5} it acts", [tuned("conjugate", "temperature")]),
    Typed(SQUARED, "acts as {0.004}, which", [acting_rate]),
    Typed(SQUARED, "network can take {0.01} with SGD", [constant(0.01)]),
]
