"""The shifts that an objective is learned for and scored on, from names as users write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fenchel.api import adapt
from fenchel.data import DATASETS, load
from fenchel.data.corruptions import CORRUPTIONS, TEST_CORRUPTIONS, VALIDATION_CORRUPTIONS
from fenchel.data.stream import Shift, Stream, corruption_shifts, shift_to
from fenchel.models import Checkpoint
from fenchel.names import parse_spec, unknown
from fenchel.train.meta.split import Split, common_length, part_of, split_rows
from fenchel.train.outputs import first_images, require_logits


@dataclass(frozen=True, kw_only=True)
class Target:
    """A data set under corruptions, or a data set that is a shift by itself (no corruptions).

    Attributes:
        data: a name for `fenchel.data.load`.
        corruptions: the corruptions to learn on, all together.
        score_corruptions: the corruptions to score on, one by one.
        severity: the severity of all of them.
        learn_images, score_images: ranges START:STOP; by default two halves.
        limit: the largest number of images of each part.
        root: the folder of the data.
    """

    data: str
    corruptions: tuple[str, ...] = VALIDATION_CORRUPTIONS
    score_corruptions: tuple[str, ...] = TEST_CORRUPTIONS
    severity: int = 5
    learn_images: str | None = None
    score_images: str | None = None
    limit: int | None = None
    root: Path | None = None

    def __post_init__(self) -> None:
        for name in (*self.corruptions, *self.score_corruptions):
            if name not in CORRUPTIONS:
                raise unknown("corruption", name, CORRUPTIONS)
        if bool(self.corruptions) != bool(self.score_corruptions):
            raise ValueError(
                "corruptions to learn on and to score on go together; got "
                f"{len(self.corruptions)} and {len(self.score_corruptions)}. Name both, or neither."
            )

    @staticmethod
    def chosen(
        source: Checkpoint,
        data: str,
        corruptions: Sequence[str] = (),
        score_corruptions: Sequence[str] = (),
        **settings: Any,
    ) -> Target:
        """The default target for data whose corruptions are not given.

        On corrupted data, and on the source's own, an objective is learned under the validation
        corruptions and scored under the test corruptions. Any other data set is a shift as it is.
        """
        name, _ = parse_spec(data)
        corrupted = "corruption" in DATASETS[name].options or name == source.metadata.data
        if corrupted or corruptions or score_corruptions:
            corruptions = corruptions or VALIDATION_CORRUPTIONS
            score_corruptions = score_corruptions or TEST_CORRUPTIONS
        return Target(
            data=data,
            corruptions=tuple(corruptions),
            score_corruptions=tuple(score_corruptions),
            **settings,
        )

    def known_to(self, source: Checkpoint) -> Checkpoint:
        """The source with its classes: for a network that does not tell them, those of the data.

        Raises:
            ValueError: it does not return logits for as many classes.
        """
        if source.classes:
            return source
        shift = self._learn[0]
        classes = shift.dataset.classes
        require_logits(source.model, first_images(shift), len(classes))
        return replace(source, metadata=replace(source.metadata, classes=classes))

    @cached_property
    def split(self) -> Split:
        """The images of the two parts."""
        count = common_length([shift.dataset for shift in self._learn])
        return split_rows(count, learn=self.learn_images, score=self.score_images, limit=self.limit)

    def learn_shifts(self) -> tuple[Shift, ...]:
        """The shifts to learn on, with their images only."""
        return tuple(part_of(shift, self.split.learn) for shift in self._learn)

    def score_shifts(self) -> tuple[Shift, ...]:
        """The shifts to score on, with their images only."""
        shifts = self._shifts(self.score_corruptions)
        common_length([shift.dataset for shift in (*self._learn, *shifts)])
        return tuple(part_of(shift, self.split.score) for shift in shifts)

    def record(self) -> dict[str, Any]:
        """Plain facts, from which `from_record` rebuilds the target."""
        values = asdict(self)
        del values["root"]
        lists = {key: list(value) for key, value in values.items() if isinstance(value, tuple)}
        return {**values, **lists, "split": self.split.record()}

    @staticmethod
    def from_record(record: Mapping[str, Any], *, root: Path | None) -> Target:
        """The inverse of `record`; the images learned on must be those that it recorded."""
        values = {key: value for key, value in record.items() if key != "split"}
        for key in ("corruptions", "score_corruptions"):
            values[key] = tuple(values.get(key, ()))
        target = Target(**values, root=root)
        target.split.check(record.get("split", {}))
        return target

    @cached_property
    def _learn(self) -> tuple[Shift, ...]:
        return self._shifts(self.corruptions)

    def _shifts(self, corruptions: tuple[str, ...]) -> tuple[Shift, ...]:
        if not corruptions:
            return (shift_to(load(self.data, root=self.root)),)
        return corruption_shifts(
            self.data, corruptions=corruptions, severities=(self.severity,), root=self.root
        )


def source_logits(
    source: Checkpoint,
    shifts: Sequence[Shift],
    samples: int,
    *,
    batch_size: int = 200,
    device: str = "cpu",
) -> Tensor:
    """Logits (about `samples`, classes) of the source under the statistics of the batch: those that
    adaptation starts from.
    """
    adapter = adapt(source.model.to(device), method="bn", protect=False)
    images = sum(len(shift.dataset) for shift in shifts)
    stream = Stream(
        shifts=shifts, setting="mixed", batch_size=min(batch_size, images), device=device
    )
    found: list[Tensor] = []
    for batch in stream:
        if len(batch) == stream.batch_size:
            found.append(adapter(batch.inputs).cpu())
        if sum(map(len, found)) >= samples:
            break
    return torch.cat(found)[:samples]


def uniform_logits(samples: int, classes: int, low: float, high: float, *, seed: int = 0) -> Tensor:
    """Logits drawn uniformly from a range, if there is no model to compute them."""
    if not low < high:
        raise ValueError(
            f"a range of logits is LOW:HIGH with LOW < HIGH; got {low:g}:{high:g}. Swap the two."
        )
    draws = torch.rand(
        samples, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    return low + (high - low) * draws
