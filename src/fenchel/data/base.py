"""What a data set is: labels in memory, inputs read on demand, and a digest that names its content.

A `Dataset` is one final class; what differs between data sets is its `reader`, a small picklable
callable from indices to an array. Images are uint8 (n, H, W, C); vectors are float32 (n, D).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fenchel.files import digest_of

Images: TypeAlias = npt.NDArray[np.uint8]
Labels: TypeAlias = npt.NDArray[np.int64]
Indices: TypeAlias = npt.NDArray[np.int64]
Reader: TypeAlias = Callable[[Indices], npt.NDArray[Any]]
Metric: TypeAlias = Literal["accuracy", "mean-class-accuracy"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """A labelled data set whose inputs are read lazily.

    Attributes:
        name: the registered name, such as ``cifar10-c``.
        split: ``train``, ``test``, or what the data set calls its parts.
        shape: the shape of one input: (H, W, C) for images, (D,) for vectors.
        labels: int64 (N,), the class index of each input.
        classes: the class names in label order (the number of logits a model needs).
        reader: indices -> uint8 (n, H, W, C) or float32 (n, D).
        content: hashed into `digest`; called once, on demand, since hashing reads the data.
        class_mask: bool (number of classes,), the classes that occur, when only some can.
        metric: how the data set is scored.
        origin: one line on where these inputs come from, for records.

    >>> import numpy as np
    >>> pixels = np.zeros((4, 8, 8, 3), np.uint8)
    >>> tiny = from_arrays("tiny", pixels, np.array([0, 1, 0, 1]), classes=("cat", "dog"))
    >>> len(tiny), tiny.images([3, 0]).shape
    (4, (2, 8, 8, 3))
    """

    name: str
    split: str
    shape: tuple[int, ...]
    labels: Labels = field(repr=False)
    classes: tuple[str, ...] = field(repr=False)
    reader: Reader = field(repr=False)
    content: Callable[[], str] = field(repr=False)
    class_mask: npt.NDArray[np.bool_] | None = field(default=None, repr=False)
    metric: Metric = "accuracy"
    origin: str = ""

    def __post_init__(self) -> None:
        labels = np.ascontiguousarray(self.labels, dtype=np.int64)
        if labels.ndim != 1 or len(labels) == 0:
            raise ValueError(
                f"{self.name}: labels must be a non-empty vector; got shape {labels.shape}."
            )
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= len(self.classes):
            raise ValueError(
                f"{self.name}: labels must lie in 0..{len(self.classes) - 1}; found {low}..{high}. "
                "Check the labels file or the list of classes."
            )
        labels.setflags(write=False)
        object.__setattr__(self, "labels", labels)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def is_images(self) -> bool:
        """Whether the inputs are images, (H, W, C), rather than vectors."""
        return len(self.shape) == 3

    @cached_property
    def digest(self) -> str:
        """A hash of everything that decides a result: inputs, labels and the order of classes."""
        mask = b"" if self.class_mask is None else self.class_mask
        return digest_of(self.content(), self.labels, "\n".join(self.classes), mask)

    def read(self, indices: Sequence[int] | npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The inputs at `indices`: uint8 (n, H, W, C) images, or float32 (n, D) vectors."""
        wanted = np.asarray(indices)
        if wanted.size == 0:
            wanted = wanted.astype(np.int64)
        if wanted.ndim != 1 or wanted.dtype.kind not in "iu":
            raise TypeError(
                f"{self.name}: indices must be a vector of integers; got {wanted.dtype} with "
                f"shape {wanted.shape}. Pass a list or an integer array."
            )
        if wanted.size and (wanted.min() < 0 or wanted.max() >= len(self)):
            raise IndexError(
                f"{self.name}: indices must lie in 0..{len(self) - 1}; got "
                f"{wanted.min()}..{wanted.max()}."
            )
        return self.reader(wanted.astype(np.int64))

    def images(self, indices: Sequence[int] | npt.NDArray[Any]) -> Images:
        """The images at `indices`, uint8 (n, H, W, C), read now and held by the caller alone."""
        if not self.is_images:
            raise TypeError(
                f"{self.name} holds vectors of shape {self.shape}, not images. Use read()."
            )
        return self.read(indices)


@dataclass(frozen=True)
class ArrayReader:
    """Rows of an array, in memory or memory-mapped, copied out on each call."""

    array: npt.NDArray[Any] = field(repr=False)

    def __call__(self, indices: Indices) -> npt.NDArray[Any]:
        """A C-contiguous copy of the rows at `indices`."""
        return np.ascontiguousarray(self.array[indices])


@dataclass(frozen=True)
class ArrayContent:
    """The content hash of an array."""

    array: npt.NDArray[Any] = field(repr=False)

    def __call__(self) -> str:
        """Hash the array, a block of rows at a time."""
        return digest_of(self.array)


@dataclass(frozen=True)
class TextContent:
    """A content hash known from a description alone (generated data)."""

    text: str

    def __call__(self) -> str:
        """Hash the description."""
        return digest_of(self.text)


def from_arrays(
    name: str,
    inputs: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    *,
    classes: Sequence[str] | None = None,
    split: str = "test",
    metric: Metric = "accuracy",
    origin: str = "arrays",
) -> Dataset:
    """A data set of arrays: uint8 (N, H, W, C) or (N, H, W) images, or float32 (N, D) vectors."""
    if inputs.dtype == np.uint8 and inputs.ndim == 3:
        inputs = inputs[..., None]
    is_images = inputs.dtype == np.uint8 and inputs.ndim == 4
    if not is_images and not (inputs.dtype == np.float32 and inputs.ndim == 2):
        raise ValueError(
            f"{name}: inputs must be uint8 (N, H, W, C) images or float32 (N, D) vectors; got "
            f"{inputs.dtype} with shape {inputs.shape}. Convert them first."
        )
    if is_images and inputs.shape[-1] not in (1, 3):
        raise ValueError(
            f"{name}: images must have 1 or 3 channels on the last axis; got shape "
            f"{inputs.shape}. Move the channels to the end."
        )
    if labels.ndim != 1 or len(labels) != len(inputs) or labels.dtype.kind not in "iu":
        raise ValueError(
            f"{name}: {len(inputs)} inputs need {len(inputs)} integer labels; got "
            f"{labels.dtype} with shape {labels.shape}."
        )
    if classes is None:
        classes = [str(k) for k in range(int(labels.max(initial=0)) + 1)]
    return Dataset(
        name=name,
        split=split,
        shape=inputs.shape[1:],
        labels=labels.astype(np.int64),
        classes=tuple(classes),
        reader=ArrayReader(inputs),
        content=ArrayContent(inputs),
        metric=metric,
        origin=origin,
    )
