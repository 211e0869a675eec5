"""Adapted predictions for a set of images, and measures that tell whether adaptation helped."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fenchel.adapters import Adapter, Health, online
from fenchel.data.formats.npy import read_npy, read_npz
from fenchel.data.pictures import EXTENSIONS, Crop, PictureReader, pictures_by_class
from fenchel.files import write_atomically
from fenchel.progress import progress

COLLAPSE = 0.5
"""Adapted predictions are suspect if they use less than this share of the classes that the source uses."""


@dataclass(frozen=True)
class ImageFiles:
    """Images to predict, read a batch at a time; labels only if their folders or file give them."""

    names: Sequence[str]
    reader: Any
    labels: npt.NDArray[np.int64] | None = None
    classes: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def batch(self, rows: npt.NDArray[np.int64]) -> Tensor:
        """Float inputs: images (n, C, H, W) in [0, 1]; float arrays as they are."""
        values = torch.from_numpy(np.array(self.reader(rows)))
        if values.dtype != torch.uint8:
            return values.float()
        if values.ndim == 3:
            values = values[..., None]
        return values.permute(0, 3, 1, 2).float() / 255


def read_images(path: Path, *, size: int | None = None, mode: str = "RGB") -> ImageFiles:
    """A folder of images (in one folder per class, or not), an `.npy` file, or an `.npz` with labels.

    Arrays hold uint8 images (N, H, W, C) or (N, H, W), or floats that go to the model as they are.
    """
    if path.is_dir():
        return _folder(path, Crop() if size is None else Crop(size, round(size * 8 / 7)), mode)
    if not path.is_file():
        raise FileNotFoundError(
            f"images come from a folder, an .npy or an .npz file; there is no {path}."
        )
    if path.suffix == ".npz":
        table = read_npz(path)
        images = next((table[key] for key in ("images", "x", "X", "data") if key in table), None)
        labels = next((table[key] for key in ("labels", "y", "Y") if key in table), None)
        if images is None:
            raise ValueError(f"{path}: must hold an array 'images'; found {', '.join(table)}.")
    elif path.suffix == ".npy":
        images, labels = read_npy(path), None
    else:
        raise ValueError(f"images come from a folder, an .npy or an .npz file; got {path.name!r}.")
    _check_array(images, path)
    integers = None if labels is None else np.asarray(labels, dtype=np.int64).reshape(-1)
    if integers is not None and len(integers) != len(images):
        raise ValueError(
            f"{path}: {len(images)} images need as many labels; found {len(integers)}."
        )
    return ImageFiles([str(row) for row in range(len(images))], images.__getitem__, integers)


def _folder(path: Path, fit: Crop, mode: str) -> ImageFiles:
    classes = sorted(
        entry.name for entry in path.iterdir() if entry.is_dir() and entry.name[0] != "."
    )
    files, labels = pictures_by_class(path, classes)
    if files:
        names = tuple(classes)
        return ImageFiles(
            files, PictureReader(path, files, fit, mode), np.array(labels, np.int64), names
        )
    files = sorted(entry.name for entry in path.iterdir() if entry.suffix.lower() in EXTENSIONS)
    if not files:
        raise ValueError(
            f"{path}: no images found ({', '.join(sorted(EXTENSIONS))}). Check the folder."
        )
    return ImageFiles(files, PictureReader(path, files, fit, mode))


def _check_array(images: npt.NDArray[Any], path: Path) -> None:
    channels_last = images.dtype == np.uint8 and (
        images.ndim == 3 or (images.ndim == 4 and images.shape[-1] in (1, 3, 4))
    )
    if len(images) == 0 or not (channels_last or (images.dtype.kind == "f" and images.ndim >= 2)):
        raise ValueError(
            f"{path}: images are uint8 (N, H, W, C) or floats (N, ...) ready for the model; got "
            f"{images.dtype} of shape {images.shape}. Convert them first."
        )


@dataclass(frozen=True)
class Predictions:
    """The adapted predictions, one row per image in the given order, and the source model's beside them."""

    names: Sequence[str]
    predicted: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.float64]
    source_predicted: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64] | None
    classes: tuple[str, ...] | None
    health: Health

    def error(self) -> float | None:
        """The share of wrong predictions in percent, where labels are known."""
        return None if self.labels is None else _error(self.predicted, self.labels)

    def source_error(self) -> float | None:
        """The same for the model without adaptation."""
        return None if self.labels is None else _error(self.source_predicted, self.labels)

    def changed(self) -> float:
        """The share of predictions that adaptation changed, in percent."""
        return _error(self.predicted, self.source_predicted)

    def warnings(self) -> list[str]:
        """Signs that adaptation made things worse; empty when there are none."""
        found = []
        ours, source = _classes_used(self.predicted), _classes_used(self.source_predicted)
        if ours < COLLAPSE * source:
            found.append(
                f"the adapted predictions gather in few classes (about {ours:.1f} in use, {source:.1f} "
                "before adaptation): a sign of collapse. Lower the learning rate, or use larger batches."
            )
        error, source_error = self.error(), self.source_error()
        if error is not None and source_error is not None and error > source_error:
            found.append(
                f"adaptation raised the error from {source_error:.2f} % to {error:.2f} %. Lower the "
                "learning rate, use larger batches, or keep the source model."
            )
        if self.health.skips:
            found.append(
                f"{self.health.skips} updates were skipped: {self.health.skipped_non_finite} because of "
                f"non-finite numbers, {self.health.skipped_none_kept} because no sample was confident."
            )
        return found

    def to_csv(self, path: Path) -> None:
        """Write a CSV file with one row per image, whole or not at all."""
        columns: dict[str, Sequence[Any]] = {
            "image": self.names,
            "prediction": self.predicted.tolist(),
        }
        if self.classes is not None:
            columns["class"] = [self._name(index) for index in self.predicted]
        columns["confidence"] = [f"{value:.6f}" for value in self.confidence]
        columns["source_prediction"] = self.source_predicted.tolist()
        if self.labels is not None:
            columns["label"] = self.labels.tolist()
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        write_atomically(path, text.getvalue().encode())

    def _name(self, index: int) -> str:
        known = self.classes is not None and index < len(self.classes)
        return self.classes[index] if known and self.classes else ""


def predict(
    adapter: Adapter,
    images: ImageFiles,
    *,
    batch_size: int = 200,
    shuffle: bool | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> Predictions:
    """Adapt on the images, batch after batch, and predict every image once.

    Images sorted by class make every batch a biased sample, so those in class folders are shuffled
    by default; others keep their order, as a stream would. Batches differ by one image at most in
    size: there is no small last one.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size}.")
    order = np.arange(len(images), dtype=np.int64)
    if images.labels is not None if shuffle is None else shuffle:
        order = np.random.default_rng(seed).permutation(order)
    predicted = np.zeros(len(images), np.int64)
    source = np.zeros(len(images), np.int64)
    confidence = np.zeros(len(images), np.float64)
    parts = np.array_split(order, math.ceil(len(images) / batch_size))
    batches = (_Rows(rows, images.batch(rows).to(device)) for rows in parts)
    with progress("adapting", total=len(images)) as bar:
        for batch, output in online(adapter, batches):
            rows = batch.rows
            source[rows] = _scores(adapter, _source_output(adapter, batch.inputs)).argmax(-1).cpu()
            scores = _scores(adapter, output).float()
            predicted[rows] = scores.argmax(-1).cpu()
            confidence[rows] = scores.softmax(-1).amax(-1).cpu()
            bar.advance(len(rows))
    return Predictions(
        names=images.names,
        predicted=predicted,
        confidence=confidence,
        source_predicted=source,
        labels=images.labels,
        classes=images.classes,
        health=adapter.health(),
    )


@dataclass(frozen=True)
class _Rows:
    """A batch of images, and their positions in the whole set."""

    rows: npt.NDArray[np.int64]
    inputs: Tensor


def _source_output(adapter: Adapter, inputs: Tensor) -> Any:
    adapter.disable()
    try:
        return adapter(inputs)
    finally:
        adapter.resume()


def _scores(adapter: Adapter, output: Any) -> Tensor:
    scores = adapter.settings.logits(output)
    if scores.ndim != 2:
        raise ValueError(f"image predictions need scores (N, classes); got {tuple(scores.shape)}.")
    return torch.cat([-scores, scores], dim=-1) if scores.shape[-1] == 1 else scores


def _error(predicted: npt.NDArray[np.int64], truth: npt.NDArray[np.int64]) -> float:
    return 100 * float((predicted != truth).mean())


def _classes_used(predicted: npt.NDArray[np.int64]) -> float:
    """The exponential of the entropy of the predicted classes: how many are effectively in use."""
    share = np.bincount(predicted) / len(predicted)
    share = share[share > 0]
    return float(np.exp(-(share * np.log(share)).sum()))


def with_preprocessing(model: nn.Module, mean: Sequence[float], std: Sequence[float]) -> nn.Module:
    """The model with (x - mean) / std in front, for those that expect normalised images."""
    from fenchel.models import Preprocessed, Preprocessing

    return Preprocessed(model, Preprocessing(mean, std))
