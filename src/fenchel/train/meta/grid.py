"""The appendix's grid: one objective for every setting that the paper varies, and their fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fenchel.data.corruptions import VALIDATION_CORRUPTIONS
from fenchel.models import Metadata, load_checkpoint, read_metadata
from fenchel.models.checkpoint import FILE_NAME as CHECKPOINT_NAME
from fenchel.names import unknown
from fenchel.train.meta.fit import FILE_NAME as FIT_NAME
from fenchel.train.meta.fit import fit
from fenchel.train.meta.learn import learn
from fenchel.train.meta.run import MetaRecipe, MetaRun
from fenchel.train.meta.target import Target, source_logits


@dataclass(frozen=True, kw_only=True)
class Source:
    """A trained model that an entry of the grid needs; `data` are its training data."""

    data: str = "cifar10"
    architecture: str = "resnet26"
    loss: str = "cross-entropy"

    def is_met_by(self, metadata: Metadata) -> bool:
        """Whether a checkpoint is such a model, whatever the arguments of its loss."""
        theirs = metadata.loss.partition(":")[0]
        found = (metadata.data, metadata.architecture, theirs)
        return found == (self.data, self.architecture, self.loss)

    @property
    def command(self) -> str:
        """How to train it."""
        return f"fenchel train --data {self.data} --model {self.architecture} --loss {self.loss}"


@dataclass(frozen=True, kw_only=True)
class GridEntry:
    """One setting of the grid."""

    name: str
    group: str
    source: Source = dataclasses.field(default_factory=Source)
    data: str = "cifar10-c"
    corruptions: tuple[str, ...] = VALIDATION_CORRUPTIONS
    severity: int = 5
    task_loss: str = "cross-entropy"


def _appendix() -> Iterable[GridEntry]:
    speckle = ("speckle_noise",)
    for noise in VALIDATION_CORRUPTIONS:
        yield GridEntry(name=f"noise-{noise}", group="noise", corruptions=(noise,))
    for severity in range(1, 6):
        yield GridEntry(
            name=f"severity-{severity}", group="severity", corruptions=speckle, severity=severity
        )
    for data in ("cifar10", "cifar100"):
        for architecture in ("resnet26", "resnet50_small"):
            yield GridEntry(
                name=f"{data}-{architecture}",
                group="data-and-architecture",
                source=Source(data=data, architecture=architecture),
                data=f"{data}-c",
                corruptions=speckle,
            )
    for loss in ("cross-entropy", "squared"):
        for task in ("cross-entropy", "squared"):
            yield GridEntry(
                name=f"source-{loss}-task-{task}",
                group="losses",
                source=Source(loss=loss),
                task_loss=task,
            )
    for noise in VALIDATION_CORRUPTIONS:
        yield GridEntry(
            name=f"squared-{noise}",
            group="squared",
            source=Source(loss="squared"),
            corruptions=(noise,),
        )
    for digits in ("mnist", "usps"):
        yield GridEntry(
            name=f"digits-{digits}",
            group="digits",
            source=Source(data="svhn"),
            data=f"{digits}:digits=True",
            corruptions=(),
        )


GRIDS: dict[str, tuple[GridEntry, ...]] = {"appendix": tuple(_appendix())}


def entries_of(preset: str, groups: Sequence[str] = ()) -> tuple[GridEntry, ...]:
    """The entries of a preset, or of some of its groups."""
    if preset not in GRIDS:
        raise unknown("preset of the meta sweep", preset, GRIDS)
    known = dict.fromkeys(entry.group for entry in GRIDS[preset])
    for group in groups:
        if group not in known:
            raise unknown("group of the sweep", group, known)
    return tuple(entry for entry in GRIDS[preset] if not groups or entry.group in groups)


def find_source(folder: Path, wanted: Source) -> Path | None:
    """The folder of the first run below `folder` that trained such a model."""
    for file in sorted(folder.rglob(CHECKPOINT_NAME)):
        if wanted.is_met_by(read_metadata(file)):
            return file.parent
    return None


def study(
    entry: GridEntry,
    checkpoint: Path,
    recipe: MetaRecipe,
    out: Path,
    *,
    limit: int | None = None,
    root: Path | None = None,
    device: str = "cpu",
    samples: int = 2000,
) -> dict[str, Any]:
    """Learn the entry's objective in `out`, fit it, and return the facts of its row."""
    source = load_checkpoint(checkpoint)
    target = Target.chosen(
        source, entry.data, entry.corruptions, severity=entry.severity, limit=limit, root=root
    )
    shifts = target.learn_shifts()
    run = MetaRun(
        source=source,
        shifts=shifts,
        recipe=dataclasses.replace(recipe, task_loss=entry.task_loss),
        out=out,
        facts={"target": target.record(), "checkpoint": str(checkpoint)},
        device=device,
    )
    learned = learn(run)
    fits = fit(learned, source_logits(source, shifts, samples, device=device))
    fits.write(out / FIT_NAME)
    return {
        "name": entry.name,
        "group": entry.group,
        "seed": recipe.seed,
        "source": source.loss_spec,
        "task": entry.task_loss,
        "better": fits.better,
        "entropy_r_squared": fits.entropy.r_squared,
        "quadratic_r_squared": fits.quadratic.r_squared,
        "entropy_aic": fits.entropy.aic,
        "quadratic_aic": fits.quadratic.aic,
    }
