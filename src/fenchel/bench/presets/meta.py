"""The meta-learned objective: which sources and task losses, at which sizes, beside which numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fenchel.adapters import SGD, Optimizer
from fenchel.bench.presets.base import Line, Preset, Run, Scale, SourceModel, add
from fenchel.train.meta import Recipe

META = "fig-meta"
TASK_LOSSES: Mapping[str, tuple[str, ...]] = {
    "cross-entropy": ("cross-entropy", "squared", "brier"),
    "squared": ("cross-entropy", "squared"),
}
"""By source. The squared loss wants logits of 0 and 1, far from those of a cross-entropy source; the Brier
score is what it is for the probabilities of such a source."""
EXPECTED = {"cross-entropy": "entropy", "squared": "quadratic"}
"""The paper's finding, our hypothesis: the fit that explains what is learned, by source."""
BASELINES = ("bn", "entropy", "conjugate")
"""What a learned objective is held against; they know of no task loss."""

_SCALES: Mapping[str, Scale] = {
    "full": Scale(name="full", limit=None, batch_size=200, seeds=(0, 1, 2)),
    "cpu": Scale(name="cpu", limit=1000, batch_size=100, seeds=(0, 1, 2)),
    "smoke": Scale(name="smoke", limit=50, batch_size=25, seeds=(0,)),
}
"""The limit is on both parts: images to learn on, and others to score on."""


@dataclass(frozen=True, kw_only=True)
class Length:
    """How long an objective is learned at a scale, and how the model adapts meanwhile.

    Attributes:
        epochs, batches, every, learning_rate, schedule: as in `Recipe`. Shifts are visited one by one, as
            they are when objectives are scored: the statistics of a batch of several shifts are others.
        optimizer: of the adaptation, for learning and for all objectives that are scored; without
            momentum, as in the paper's algorithm. The gradient looks one step ahead and momentum carries
            further: an objective that is updated at every batch grows until adaptation overshoots.
        fit_logits: how many logits the fits are made on.
    """

    epochs: int
    batches: int
    every: int
    learning_rate: float = 1e-3
    schedule: str = "constant"
    optimizer: Optimizer
    fit_logits: int = 2000

    def recipe(self, task_loss: str, batch_size: int, seed: int) -> Recipe:
        """The recipe of one objective."""
        return Recipe(
            task_loss=task_loss,
            optimizer=self.optimizer,
            epochs=self.epochs,
            batches=self.batches,
            batch_size=batch_size,
            every=self.every,
            learning_rate=self.learning_rate,
            schedule=self.schedule,
            seed=seed,
        )

    def __str__(self) -> str:
        return (
            f"learned in {self.epochs} epochs of {self.batches} batches, an update every {self.every}; "
            f"adaptation by {self.optimizer}"
        )


def _plain_sgd(learning_rate: float) -> SGD:
    return SGD(learning_rate=learning_rate, momentum=0.0, nesterov=False)


LENGTHS: Mapping[str, Length] = {
    "full": Length(epochs=100, batches=50, every=5, optimizer=_plain_sgd(1e-3)),
    "cpu": Length(
        epochs=4,
        batches=40,
        every=1,
        learning_rate=3e-3,
        schedule="cosine",
        optimizer=_plain_sgd(1e-1),
    ),
    "smoke": Length(epochs=1, batches=4, every=2, optimizer=_plain_sgd(1e-2), fit_logits=100),
}
"""By scale: full is the paper's."""


def _line(loss: str, **errors: float | None) -> Line:
    published = {name.replace("_", " "): Run(error=error) for name, error in errors.items()}
    source = SourceModel(
        data="cifar10",
        loss=loss,
        architectures=("resnet26_wide", "resnet26"),
        recipe="--preset paper",
    )
    return Line(title=f"source {loss}", data="cifar10-c", source=source, runs=published)


add(
    Preset(
        name=META,
        about="curves, fits and errors of meta-learned objectives, CIFAR-10-C",
        lines=(
            _line(
                "cross-entropy", bn=None, entropy=13.14, conjugate=None, learned=12.35,
                entropy_fit=12.32, quadratic_fit=None,
            ),
            _line(
                "squared", bn=None, entropy=14.57, conjugate=None, learned=13.48,
                entropy_fit=None, quadratic_fit=13.20,
            ),
        ),
        notes=(
            "Learned on the four validation corruptions, scored on the fifteen test ones. The released "
            "code learns and scores on the same images; here one half is for learning, the other for "
            "scoring.",
            "The paper gives one error for each source and does not name its task loss; it stands beside "
            "both. The optimiser of the adaptation, one for all objectives, is our choice. Variants (noise, "
            "severity, data, network) are runs of 'fenchel meta sweep'.",
        ),
        figure="learned",
        scales=_SCALES,
    )
)  # fmt: skip
