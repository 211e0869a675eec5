"""Tables over other domains: digits, renditions, photographs. No target was held out for tuning.

Where settings were tuned for a network of SVHN, that was on its own images, corrupted.
"""

from __future__ import annotations

from fenchel.bench.presets.base import DIGITS, Line, Preset, Run, SourceModel, adam, add, sgd


def _svhn(loss: str) -> SourceModel:
    return SourceModel(
        data="svhn:digits=True",
        loss=loss,
        architectures=("resnet18_small", "resnet26"),
        recipe="--preset digits",
    )


def _digits(title: str, data: str, model: SourceModel, /, **runs: Run) -> Line:
    return Line(
        title=f"SVHN → {title}",
        data=f"{data}:digits=True",
        source=model,
        runs=runs,
        tuning="t2" if title.endswith("T = 2") else "t1",
    )


POLY, CE = _svhn("poly:epsilon=6"), _svhn("cross-entropy")

add(
    Preset(
        name="table-domain",
        about="sources trained with PolyLoss, other domains",
        lines=(
            _digits(
                "MNIST",
                "mnist",
                POLY,
                source=Run(error=28.33),
                bn=Run(),
                hard=adam(1e-2, 1, 20.21),
                robust=adam(1e-2, 1, 19.73),
                entropy=adam(1e-2, 1, 14.28),
                memo=adam(1e-2, 1, None),
                soft=adam(1e-2, 1, 16.54),
                conjugate=adam(1e-2, 1, 10.73),
            ),
            _digits(
                "USPS",
                "usps",
                POLY,
                source=Run(error=31.58),
                bn=Run(),
                hard=adam(1e-2, 1, 23.32),
                robust=adam(1e-2, 1, 26.12),
                entropy=adam(1e-2, 1, 23.12),
                memo=adam(1e-2, 1, None),
                soft=adam(1e-2, 1, 24.07),
                conjugate=adam(1e-2, 1, 21.62),
            ),
            _digits(
                "MNIST-M",
                "mnist-m",
                POLY,
                source=Run(error=61.69),
                bn=Run(),
                hard=adam(1e-2, 1, 50.73),
                robust=adam(1e-2, 1, 51.35),
                entropy=adam(1e-2, 1, 49.33),
                memo=adam(1e-2, 1, None),
                soft=adam(1e-2, 1, 50.47),
                conjugate=adam(1e-2, 1, 47.59),
            ),
            Line(
                title="ImageNet-R",
                data="imagenet-r",
                source=SourceModel(
                    data="imagenet", loss="poly:epsilon=8", architectures=("resnet50",)
                ),
                runs={
                    "source": Run(error=64.19),
                    "bn": Run(),
                    "hard": sgd(2.5e-3, 1, 58.52),
                    "robust": sgd(2.5e-3, 1, 59.46),
                    "entropy": sgd(2.5e-3, 1, 58.25),
                    "soft": sgd(2.5e-3, 1, 56.62),
                    "conjugate": sgd(2.5e-3, 1, 55.63),
                },
            ),
            Line(
                title="VisDA-C",
                data="visda-c",
                source=SourceModel(
                    data="visda-c",
                    loss="poly",
                    architectures=("resnet50",),
                    unstated={"epsilon": 6},
                ),
                runs={
                    "source": Run(error=58.13),
                    "bn": Run(),
                    "hard": sgd(1e-3, 1, 40.43),
                    "robust": sgd(1e-3, 1, 45.44),
                    "entropy": sgd(1e-3, 1, 44.11),
                    "soft": sgd(1e-3, 1, 39.63),
                    "conjugate": sgd(1e-3, 1, 38.42),
                },
            ),
        ),
        notes=(
            "No temperature: there is no held-out target to tune it on. Where a rate was tuned for a "
            "network of SVHN, that was on corrupted images of SVHN.",
            "VisDA-C: optimiser, rate and epsilon are not in the paper; SGD 0.001 and any epsilon are our "
            "choice. ImageNet-R: the rate of the ImageNet runs.",
        ),
        scales=DIGITS,
    )
)

add(
    Preset(
        name="table-ce-digits",
        about="sources trained with cross-entropy on SVHN, other digits",
        lines=(
            _digits(
                "MNIST, T = 1",
                "mnist",
                CE,
                source=Run(error=34.17),
                bn=Run(),
                hard=adam(1e-2, 1, 21.54),
                robust=adam(1e-2, 1, 27.44),
                memo=adam(1e-2, 1, 10.67),
                conjugate=adam(1e-2, 1, 14.41),
            ),
            _digits(
                "MNIST, T = 2",
                "mnist",
                CE,
                hard=adam(1e-2, 1, 21.54),
                robust=adam(1e-2, 2, 13.26),
                memo=adam(1e-2, 2, 9.36),
                conjugate=adam(1e-2, 2, 9.26),
            ),
            _digits(
                "USPS, T = 1",
                "usps",
                CE,
                source=Run(error=31.84),
                bn=Run(),
                hard=adam(1e-2, 1, 26.06),
                robust=adam(1e-2, 1, 26.81),
                memo=adam(1e-2, 1, 22.72),
                conjugate=adam(1e-2, 1, 22.57),
            ),
            _digits(
                "USPS, T = 2",
                "usps",
                CE,
                hard=adam(1e-2, 1, 26.06),
                robust=adam(1e-2, 2, 22.32),
                memo=adam(1e-2, 2, 22.42),
                conjugate=adam(1e-2, 2, 22.27),
            ),
            _digits(
                "MNIST-M, T = 1",
                "mnist-m",
                CE,
                source=Run(),
                bn=Run(),
                hard=adam(1e-2, 1, None),
                robust=adam(1e-2, 1, None),
                memo=adam(1e-2, 1, None),
                conjugate=adam(1e-2, 1, None),
            ),
            _digits(
                "MNIST-M, T = 2",
                "mnist-m",
                CE,
                hard=adam(1e-2, 1, None),
                robust=adam(1e-2, 2, None),
                memo=adam(1e-2, 2, None),
                conjugate=adam(1e-2, 2, None),
            ),
        ),
        notes=(
            "T = 2 was a guess of the paper's authors, not tuned. The hard label has equal errors in both "
            "lines of the paper, so it is taken at T = 1 in both. MNIST-M: ours alone.",
        ),
        scales=DIGITS,
    )
)
