"""Adapted predictions for a set of images: order, batches, warnings, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fenchel
from fenchel.predict import ImageFiles, predict, read_images


class Recorder(nn.Module):
    """Predicts the class written into the first pixel, and remembers how large its batches were."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.sizes: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        classes = (x[:, 0, 0, 0] * 255).round().long()
        return self.scale * nn.functional.one_hot(classes, 10).float()


def pile_of(count: int, labelled: bool = False) -> ImageFiles:
    images = np.zeros((count, 2, 2, 1), np.uint8)
    images[:, 0, 0, 0] = np.arange(count) % 10
    labels = np.arange(count) % 10 if labelled else None
    return ImageFiles([str(k) for k in range(count)], images.__getitem__, labels)


@pytest.mark.parametrize("labelled", [False, True])
def test_every_image_is_predicted_once_and_in_its_own_row(labelled: bool) -> None:
    adapter = fenchel.adapt(Recorder(), method="source")
    found = predict(adapter, pile_of(103, labelled), batch_size=20)
    assert found.predicted.tolist() == [k % 10 for k in range(103)]
    assert found.error() == (0.0 if labelled else None)
    assert found.changed() == 0


def test_batches_differ_by_one_at_most() -> None:
    adapter = fenchel.adapt(Recorder(), method="source")
    predict(adapter, pile_of(103), batch_size=50)
    assert adapter.health().batches == 3
    assert adapter.health().samples == 103


def test_images_without_labels_keep_their_order_and_others_are_shuffled() -> None:
    seen: list[int] = []

    class Watcher(Recorder):
        def forward(self, x: Tensor) -> Tensor:
            seen.extend((x[:, 0, 0, 0] * 255).round().long().tolist())
            return super().forward(x)

    predict(fenchel.adapt(Watcher(), method="source"), pile_of(10), batch_size=10)
    assert seen[:10] == list(range(10))
    seen.clear()
    predict(fenchel.adapt(Watcher(), method="source"), pile_of(10, True), batch_size=10)
    assert sorted(seen[:10]) == list(range(10)) != seen[:10]


def test_collapse_into_one_class_is_told() -> None:
    class Constant(nn.Module):
        """Says class 0 for everything once its batch norm uses the batch."""

        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(1, affine=False)

        def forward(self, x: Tensor) -> Tensor:
            value = x[:, 0, 0, :1] * 255
            source = nn.functional.one_hot(value[:, 0].round().long(), 10).float()
            normalised = self.norm(value)
            if torch.allclose(normalised, value, atol=1e-3):
                return source
            return nn.functional.one_hot(torch.zeros(len(x), dtype=torch.long), 10).float()

    found = predict(fenchel.adapt(Constant(), method="bn"), pile_of(100, True), batch_size=50)
    told = " ".join(found.warnings())
    assert "collapse" in told
    assert "raised the error" in told


def test_a_csv_is_written_whole(tmp_path: Path) -> None:
    found = predict(fenchel.adapt(Recorder(), method="source"), pile_of(3, True), batch_size=20)
    found.to_csv(tmp_path / "out.csv")
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == "image,prediction,confidence,source_prediction,label"
    assert lines[1].startswith("0,0,")
    assert len(lines) == 4


def test_a_flat_folder_has_no_labels_and_class_folders_do(tmp_path: Path) -> None:
    picture = Image.fromarray(np.zeros((6, 6, 3), np.uint8))
    for name in ("b.png", "a.png"):
        picture.save(tmp_path / name)
    flat = read_images(tmp_path)
    assert (list(flat.names), flat.labels) == (["a.png", "b.png"], None)
    for name in ("dog", "cat"):
        (tmp_path / "sorted" / name).mkdir(parents=True)
        picture.save(tmp_path / "sorted" / name / "1.png")
    tree = read_images(tmp_path / "sorted")
    assert tree.classes == ("cat", "dog")
    assert tree.labels is not None
    assert tree.labels.tolist() == [0, 1]
    assert tree.batch(np.array([0, 1])).shape == (2, 3, 6, 6)


def test_float_arrays_go_to_the_model_as_they_are(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(4, 7)).astype(np.float32)
    np.save(tmp_path / "values.npy", values)
    batch = read_images(tmp_path / "values.npy").batch(np.array([2, 0]))
    assert torch.equal(batch, torch.from_numpy(values[[2, 0]]))


def test_an_archive_may_bring_labels(tmp_path: Path) -> None:
    pixels = np.zeros((4, 5, 5), np.uint8)
    np.savez(tmp_path / "images.npz", images=pixels, labels=np.arange(4))
    images = read_images(tmp_path / "images.npz")
    assert images.batch(np.arange(4)).shape == (4, 1, 5, 5)
    np.savez(tmp_path / "bad.npz", images=pixels, labels=np.arange(3))
    with pytest.raises(ValueError, match="4 images"):
        read_images(tmp_path / "bad.npz")


@pytest.mark.parametrize(
    "array",
    [np.zeros((3, 4, 4, 7), np.uint8), np.zeros(5, np.float32), np.zeros((0, 4, 4, 3), np.uint8)],
    ids=["seven channels", "one axis", "empty"],
)
def test_arrays_of_another_kind_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "array.npy", array)
    with pytest.raises(ValueError, match=r"array\.npy"):
        read_images(tmp_path / "array.npy")


def test_a_path_that_is_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_images(tmp_path / "nowhere")
    (tmp_path / "text.txt").write_text("hello")
    with pytest.raises(ValueError, match="folder"):
        read_images(tmp_path / "text.txt")
    with pytest.raises(ValueError, match="no images"):
        read_images(tmp_path)
