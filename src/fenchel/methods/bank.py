"""A bank of samples in which the classes are balanced, and the old and unsure make room."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fenchel.adapters.state import Tensors


@dataclass
class Sample:
    """A sample of the bank: where its image is, its predicted class, how unsure that is, and its age.

    `age` counts the samples that came since, itself included.
    """

    image: int
    label: int
    entropy: float
    age: int = 0


class Bank:
    """A fixed number of slots, on the host: who comes, who stays and who goes.

    Images stay where they are until the end; slots know them by their numbers, first those of the old
    bank and then those of the batch.
    """

    def __init__(self, capacity: int, classes: int, memory: Tensors) -> None:
        self.capacity, self.classes = capacity, classes
        columns = (memory[name].tolist() for name in ("filled", "labels", "entropies", "ages"))
        self.slots: list[Sample | None] = [
            Sample(number, label, entropy, age) if filled else None
            for number, (filled, label, entropy, age) in enumerate(zip(*columns, strict=True))
        ]

    @staticmethod
    def empty(capacity: int, images: Tensor, entropies: Tensor) -> Tensors:
        """The memory of a bank without samples, for images and entropies such as these."""
        numbers = torch.zeros(capacity, dtype=torch.int64, device=images.device)
        return {
            "images": images.new_zeros(capacity, *images.shape[1:]),
            "labels": numbers,
            "entropies": entropies.new_zeros(capacity),
            "ages": numbers.clone(),
            "filled": numbers.bool(),
        }

    def __iter__(self) -> Iterator[Sample]:
        return (sample for sample in self.slots if sample is not None)

    def add(self, sample: Sample) -> None:
        """Let a sample in if there is room for it; all others are older then."""
        place = self._room_for(sample)
        if place is not None:
            self.slots[place] = sample
        for each in self:
            each.age += 1

    def _room_for(self, sample: Sample) -> int | None:
        """A free slot while its class has less than its share, else that of a worse sample."""
        counts = Counter(each.label for each in self)
        if counts[sample.label] >= self.capacity / self.classes:
            rivals = {sample.label}
        elif None in self.slots:
            return self.slots.index(None)
        else:
            rivals = {label for label, count in counts.items() if count == max(counts.values())}
        scores = {
            place: self._score(each)
            for place, each in enumerate(self.slots)
            if each is not None and each.label in rivals
        }
        worst = max(scores, key=lambda place: scores[place])
        return worst if scores[worst] > self._score(sample) else None

    def _score(self, sample: Sample) -> float:
        """1 / (1 + exp(-age / N)) + H / ln C: what is old or unsure goes first."""
        timely = 1 / (1 + math.exp(-sample.age / self.capacity))
        return timely + sample.entropy / math.log(self.classes)

    def images(self, everything: Tensor) -> Tensor:
        """The images of the bank, among those of the old bank and of the batch."""
        return everything[[sample.image for sample in self]]

    def weights(self, like: Tensor) -> Tensor:
        """exp(-age / N) / (1 + exp(-age / N)): what is old counts less."""
        ages = [sample.age / self.capacity for sample in self]
        return torch.tensor(ages, dtype=like.dtype, device=like.device).neg().sigmoid()

    def memory(self, old: Tensors, everything: Tensor) -> Tensors:
        """The bank as tensors of the same shapes and types as the old ones."""
        empty = Sample(0, 0, 0.0)
        samples = [sample or empty for sample in self.slots]
        numbers = [n if s is None else s.image for n, s in enumerate(self.slots)]
        columns = {
            "labels": [sample.label for sample in samples],
            "entropies": [sample.entropy for sample in samples],
            "ages": [sample.age for sample in samples],
            "filled": [sample is not None for sample in self.slots],
        }
        written = {
            name: torch.tensor(column, dtype=old[name].dtype, device=old[name].device)
            for name, column in columns.items()
        }
        return {**written, "images": everything[numbers]}
