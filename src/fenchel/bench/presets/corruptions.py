"""Tables over common corruptions: cross-entropy, PolyLoss and squared-loss sources, and severities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fenchel.bench.presets.base import (
    THREE_SEEDS,
    Line,
    Preset,
    Run,
    SourceModel,
    adam,
    add,
    sgd,
)
from fenchel.data.corruptions import SEVERITIES

WIDE_AND_THIN = ("resnet26_wide", "resnet26")
PAPER = "--preset paper"


def _small(data: str, loss: str, **unstated: float) -> SourceModel:
    return SourceModel(
        data=data, loss=loss, architectures=WIDE_AND_THIN, recipe=PAPER, unstated=unstated
    )


def _imagenet(loss: str) -> SourceModel:
    return SourceModel(data="imagenet", loss=loss, architectures=("resnet50",))


def _cifar(classes: int, title: str, model: SourceModel, runs: Mapping[str, Run]) -> Line:
    """`title` is `T = 1` or `tuned T`."""
    return Line(
        title=f"CIFAR-{classes}-C, {title}",
        data=f"cifar{classes}-c",
        source=model,
        runs=runs,
        tuning="t1" if title == "T = 1" else "tuned",
    )


def _cifar10(title: str, model: SourceModel, /, **runs: Run) -> Line:
    return _cifar(10, title, model, runs)


def _cifar100(title: str, model: SourceModel, /, **runs: Run) -> Line:
    return _cifar(100, title, model, runs)


def _imagenet_c(title: str, model: SourceModel, /, **runs: Run) -> Line:
    severities = (1, 2, 3, 4, 5)
    return Line(
        title=f"ImageNet-C, {title}",
        data="imagenet-c",
        severities=severities,
        source=model,
        runs=runs,
    )


ALL_SEVERITIES = "ImageNet-C: mean over 15 corruptions and 5 severities; CIFAR: severity 5."
SEEDS_UNSTATED = "The paper does not say how many seeds its spreads come from; full means three."

CE10, CE100, CE1000 = (
    _small("cifar10", "cross-entropy"),
    _small("cifar100", "cross-entropy"),
    _imagenet("cross-entropy"),
)

add(
    Preset(
        name="table-ce",
        about="sources trained with cross-entropy, common corruptions",
        lines=(
            _cifar10(
                "T = 1",
                CE10,
                source=Run(error=29.54),
                bn=Run(),
                hard=sgd(1e-3, 1, 13.95, 0.06),
                robust=sgd(1e-3, 1, 13.97, 0.04),
                memo=sgd(1e-3, 1, 12.60, 0.04),
                entropy=sgd(1e-3, 1, None),
                soft=sgd(1e-3, 1, None),
                conjugate=sgd(1e-3, 1, 13.07, 0.05),
            ),
            _cifar10(
                "tuned T",
                CE10,
                hard=sgd(1e-3, 1, 13.95, 0.06),
                robust=sgd(1e-2, 2, 12.85, 0.04),
                memo=sgd(5e-3, 3, 12.51, 0.01),
                entropy=adam(1e-3, 2, None),
                soft=adam(1e-3, 2, None),
                conjugate=adam(1e-3, 2, 12.51, 0.03),
            ),
            _cifar100(
                "T = 1",
                CE100,
                source=Run(error=62.26),
                bn=Run(),
                hard=sgd(1e-2, 1, 45.22, 0.4),
                robust=sgd(1e-2, 1, 39.80, 0.18),
                memo=sgd(5e-3, 1, 38.52, 0.16),
                conjugate=sgd(1e-2, 1, 41.15, 0.25),
            ),
            _cifar100(
                "tuned T",
                CE100,
                hard=sgd(1e-2, 1, 45.22, 0.4),
                robust=sgd(1e-2, 2, 36.37, 0.10),
                memo=sgd(1e-2, 2, 37.38, 0.06),
                conjugate=sgd(1e-2, 2, 36.10, 0.07),
            ),
            _imagenet_c(
                "T = 1",
                CE1000,
                source=Run(error=61.89),
                bn=Run(),
                hard=sgd(1e-2, 1, 45.43, 0.05),
                robust=sgd(2.5e-3, 1, 45.68, 0.01),
                memo=sgd(1e-3, 1, 48.91, 0.03),
                conjugate=sgd(2.5e-3, 1, 45.82, 0.01),
            ),
            _imagenet_c(
                "tuned T",
                CE1000,
                hard=sgd(1e-2, 1, 45.43, 0.05),
                robust=sgd(2.5e-3, 1.5, 45.61, 0.01),
                memo=sgd(1e-3, 1, 48.91, 0.04),
                conjugate=sgd(2.5e-3, 1.5, 45.36, 0.01),
            ),
        ),
        notes=(
            ALL_SEVERITIES,
            SEEDS_UNSTATED,
            "For cross-entropy the conjugate is the softmax entropy, and the soft label the same: one run "
            "under three names.",
            "The text gives 45.34 for the tuned conjugate on ImageNet-C, the table 45.36.",
        ),
    )
)

POLY10, POLY100, POLY1000 = (
    _small("cifar10", "poly:epsilon=6"),
    _small("cifar100", "poly", epsilon=6),
    _imagenet("poly:epsilon=8"),
)

POLY10_LINE = _cifar10(
    "T = 1",
    POLY10,
    source=Run(error=30.22),
    bn=Run(),
    hard=sgd(1e-3, 1, 13.81, 0.12),
    robust=sgd(1e-3, 1, 14.23, 0.02),
    entropy=sgd(1e-3, 1, 13.46, 0.06),
    memo=sgd(5e-3, 1, 13.23, 0.07),
    soft=sgd(1e-3, 1, 14.64, 0.11),
    conjugate=sgd(1e-3, 1, 13.02, 0.09),
)
POLY1000_LINES = (
    _imagenet_c(
        "T = 1",
        POLY1000,
        source=Run(error=62.18),
        bn=Run(),
        hard=sgd(1e-2, 1, 45.44, 0.21),
        robust=sgd(2.5e-3, 1, 46.27, 0.03),
        entropy=sgd(2.5e-3, 1, 46.10, 0.03),
        memo=sgd(5e-3, 1, 48.21, 0.05),
        soft=sgd(2.5e-3, 1, 44.63, 0.03),
        conjugate=sgd(2.5e-3, 1, 44.01, 0.01),
    ),
    _imagenet_c(
        "tuned T",
        POLY1000,
        hard=sgd(1e-2, 1, 45.44, 0.21),
        robust=sgd(2.5e-3, 1, 46.27, 0.03),
        entropy=sgd(2.5e-3, 1.5, 45.50, 0.02),
        memo=sgd(5e-3, 1, 48.21, 0.04),
        soft=sgd(2.5e-3, 2, 44.45, 0.03),
        conjugate=sgd(2.5e-3, 1, 44.01, 0.01),
    ),
)

add(
    Preset(
        name="table-poly",
        about="sources trained with PolyLoss, common corruptions",
        lines=(
            POLY10_LINE,
            _cifar10(
                "tuned T",
                POLY10,
                hard=sgd(1e-3, 1, 13.81, 0.12),
                robust=sgd(1e-2, 3, 12.45, 0.05),
                entropy=sgd(1e-2, 3, 12.23, 0.06),
                memo=sgd(5e-3, 3, 12.33, 0.04),
                soft=sgd(1e-3, 2, 12.26, 0.04),
                conjugate=sgd(1e-3, 1.5, 12.08, 0.05),
            ),
            _cifar100(
                "T = 1",
                POLY100,
                source=Run(error=63.91),
                bn=Run(),
                hard=sgd(1e-2, 1, 40.47, 0.05),
                robust=sgd(1e-2, 1, 42.86, 0.11),
                entropy=sgd(1e-2, 1, 40.12, 0.08),
                memo=sgd(1e-2, 1, 39.90, 0.05),
                soft=sgd(1e-2, 1, 41.00, 0.11),
                conjugate=sgd(1e-2, 1, 38.17, 0.17),
            ),
            _cifar100(
                "tuned T",
                POLY100,
                hard=sgd(1e-2, 1, 40.47, 0.05),
                robust=adam(1e-3, 3, 39.80, 0.08),
                entropy=sgd(1e-2, 2, 38.23, 0.05),
                memo=sgd(1e-2, 2, 39.23, 0.04),
                soft=sgd(1e-2, 2.5, 37.04, 0.06),
                conjugate=sgd(1e-2, 1.5, 36.83, 0.08),
            ),
            *POLY1000_LINES,
        ),
        notes=(
            ALL_SEVERITIES,
            SEEDS_UNSTATED,
            "Epsilon is 6 for CIFAR-10 and 8 for ImageNet. The paper gives none for CIFAR-100: a source of "
            "any epsilon is taken, and training one uses 6.",
        ),
        scales=THREE_SEEDS,
    )
)

_BY_SEVERITY: tuple[tuple[dict[str, float], dict[str, float]], ...] = tuple(
    (
        dict(zip(("robust", "entropy", "memo", "soft", "conjugate"), plain, strict=True)),
        dict(zip(("robust", "entropy", "memo", "soft", "conjugate"), tuned, strict=True)),
    )
    for plain, tuned in (
        ((34.27, 33.17, 34.39, 32.49, 32.26), (34.27, 32.84, 34.39, 32.70, 32.26)),
        ((41.25, 39.04, 40.38, 37.78, 37.40), (41.25, 38.50, 40.38, 37.75, 37.40)),
        ((47.37, 44.04, 45.67, 42.30, 41.72), (47.37, 43.33, 45.67, 42.14, 41.72)),
        ((56.63, 51.88, 54.49, 49.61, 48.84), (56.63, 51.03, 54.49, 49.39, 48.84)),
        ((67.11, 62.53, 66.13, 60.94, 59.90), (67.11, 61.80, 66.13, 60.30, 59.90)),
    )
)
"""For severities 1 to 5: errors at T = 1, and at the tuned T."""


def _at_severity(line: Line, severity: int, errors: dict[str, float]) -> Line:
    """The line of all severities, cut down to one."""
    runs = {
        method: replace(line.runs[method], error=error, spread=None)
        for method, error in errors.items()
    }
    title = line.title.replace("ImageNet-C", f"ImageNet-C severity {severity}")
    return replace(line, title=title, severities=(severity,), runs=runs)


ONE_OF_EACH_KIND = ("gaussian_noise", "motion_blur", "fog", "jpeg_compression")
"""A corruption of each family: noise, blur, weather, digital."""


def _cifar_at_severity(severity: int) -> Line:
    """What two cores can carry: the paper has no such table for CIFAR."""
    runs = {
        method: replace(run, error=None, spread=None)
        for method, run in POLY10_LINE.runs.items()
        if method != "hard"
    }
    return replace(
        POLY10_LINE,
        title=f"CIFAR-10-C severity {severity}, T = 1",
        corruptions=ONE_OF_EACH_KIND,
        severities=(severity,),
        runs=runs,
    )


add(
    Preset(
        name="table-severity",
        about="severity by severity, source trained with PolyLoss",
        lines=(
            *(
                _at_severity(line, severity, errors)
                for severity, both in enumerate(_BY_SEVERITY, start=1)
                for line, errors in zip(POLY1000_LINES, both, strict=True)
            ),
            *map(_cifar_at_severity, SEVERITIES),
        ),
        notes=(
            "Settings are those of the table over all severities.",
            f"CIFAR-10-C: ours alone, over {', '.join(ONE_OF_EACH_KIND)}.",
            "The paper's robust label averages to 49.32 here and to 46.27 in the table over all "
            "severities.",
        ),
        figure="severity",
    )
)

SQUARED10, SQUARED100 = _small("cifar10", "squared"), _small("cifar100", "squared")

add(
    Preset(
        name="table-squared",
        about="sources trained with the squared loss, common corruptions",
        lines=(
            _cifar10(
                "T = 1",
                SQUARED10,
                source=Run(error=28.34),
                bn=Run(),
                hard=sgd(1e-2, 1, 13.71, 0.07),
                robust=sgd(1e-2, 1, 13.06, 0.05),
                entropy=sgd(1e-2, 1, 13.24, 0.02),
                memo=sgd(1e-2, 1, 13.22, 0.04),
                soft=sgd(1e-4, 1, 14.85, 0.08),
                conjugate=sgd(1e-2, 1, 12.99, 0.04),
            ),
            _cifar10(
                "tuned T",
                SQUARED10,
                hard=sgd(1e-2, 1, None),
                robust=sgd(1e-2, 1, None),
                entropy=sgd(1e-2, 1, None),
                memo=sgd(1e-2, 1, None),
                soft=sgd(1e-4, 1, None),
                conjugate=sgd(1e-2, 1, None),
            ),
            _cifar100(
                "T = 1",
                SQUARED100,
                source=Run(error=68.79),
                bn=Run(),
                hard=adam(1e-3, 1, 50.82, 0.31),
                robust=adam(1e-3, 1, 44.53, 0.13),
                entropy=adam(1e-3, 1, 43.55, 0.12),
                memo=adam(1e-3, 1, 51.35, 0.04),
                soft=adam(1e-4, 1, 51.99, 0.03),
                conjugate=adam(1e-3, 1, 43.39, 0.11),
            ),
            _cifar100(
                "tuned T",
                SQUARED100,
                hard=adam(1e-3, 1, 50.82, 0.31),
                robust=adam(1e-3, 0.5, 43.99, 0.15),
                entropy=adam(1e-3, 2, 43.21, 0.08),
                memo=adam(1e-3, 2, 51.35, 0.04),
                soft=adam(1e-4, 2.5, 51.99, 0.03),
                conjugate=adam(1e-3, 1, 43.39, 0.11),
            ),
        ),
        notes=(
            "The text gives 12.87 (conjugate) and 31.81 (soft) on CIFAR-10-C, the table 12.99 and 14.85.",
            "A temperature only rescales the conjugate of the squared loss. On CIFAR-10-C the paper tunes "
            "none for any method; the settings of that line are those of T = 1 unless tuned here.",
            SEEDS_UNSTATED,
        ),
    )
)

add(
    Preset(
        name="fig-task-loss",
        about="task loss (PolyLoss, epsilon 6) on CIFAR-10-C while adapting",
        lines=(POLY10_LINE,),
        notes=(
            "The paper draws the curves and gives no numbers for them, nor the corruption: here they are "
            "the mean over the fifteen. The errors are those of its table.",
        ),
        figure="task-loss",
        scales=THREE_SEEDS,
    )
)
