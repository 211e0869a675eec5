"""Images of a user: how they are read, in which order, and in which batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fenchel.predict import ImageFiles, read_images
from fenchel.predict.reading import Batch, Picture, in_batches, of_shape, read_ahead


def pile_of(count: int) -> ImageFiles:
    images = np.zeros((count, 2, 2, 1), np.uint8)
    images[:, 0, 0, 0] = np.arange(count) % 256
    return ImageFiles([str(k) for k in range(count)], images.__getitem__)


def batches_of(usable: list[bool], size: int) -> list[list[int]]:
    pictures = [
        Picture(index, torch.zeros(1) if good else None, "" if good else "unreadable")
        for index, good in enumerate(usable)
    ]
    return [[each.index for each in batch.pictures] for batch in in_batches(pictures, size)]


def test_a_small_rest_is_shared_by_the_last_two_batches() -> None:
    assert [len(batch) for batch in batches_of([True] * 103, 50)] == [50, 27, 26]
    assert [len(batch) for batch in batches_of([True] * 100, 50)] == [50, 50]
    assert [len(batch) for batch in batches_of([True] * 7, 50)] == [7]


def test_images_that_cannot_be_used_do_not_change_the_batches_of_the_others() -> None:
    usable = [index % 7 != 3 for index in range(60)]
    every = batches_of(usable, 10)
    assert sorted(index for batch in every for index in batch) == list(range(60))
    good = [index for index in range(60) if usable[index]]
    alone = [[good[place] for place in batch] for batch in batches_of([True] * len(good), 10)]
    assert [[index for index in batch if usable[index]] for batch in every] == alone


def test_what_follows_a_batch_depends_on_later_images_alone() -> None:
    usable = [index % 5 != 1 for index in range(83)]
    every = batches_of(usable, 10)
    done = sum(len(batch) for batch in every[:3])
    rest = batches_of(usable[done:], 10)
    assert [[index + done for index in batch] for batch in rest] == every[3:]


def test_only_bad_images_make_one_batch() -> None:
    assert batches_of([False] * 5, 2) == [[0, 1, 2, 3, 4]]


def test_threads_read_ahead_in_order_and_no_further_than_told() -> None:
    read: list[int] = []
    pile = pile_of(200)

    def watched(index: int) -> np.ndarray:
        read.append(index)
        return pile.read(index)

    watcher = ImageFiles(pile.names, watched)
    pictures = read_ahead(watcher, range(200), workers=3, ahead=10)
    assert [next(pictures).index for _ in range(20)] == list(range(20))
    assert max(read) <= 30
    pictures.close()
    assert max(read) <= 31


def test_the_order_of_class_folders_is_random_and_does_not_depend_on_other_images() -> None:
    names = [f"cat/{k}" for k in range(40)]
    pile = ImageFiles(names, lambda index: np.zeros(1), folders=("cat",))
    order = [names[k] for k in pile.order(seed=1)]
    assert sorted(order) == sorted(names)
    assert order != names
    assert order != [names[k] for k in pile.order(seed=2)]
    fewer = ImageFiles(names[:17] + names[18:], lambda index: np.zeros(1), folders=("cat",))
    assert [fewer.names[k] for k in fewer.order(seed=1)] == [n for n in order if n != names[17]]
    assert pile_of(10).order().tolist() == list(range(10))
    assert pile.order(shuffle=False).tolist() == list(range(40))


def test_an_image_of_another_shape_is_left_out_with_the_reason() -> None:
    pictures = [Picture(0, torch.zeros(4, 4, 3)), Picture(1, torch.zeros(5, 4, 3))]
    first, second = of_shape((4, 4, 3), pictures)
    assert first is pictures[0]
    assert second.values is None
    assert second.reason == "5 x 4 x 3 where the first image has 4 x 4 x 3"


def test_a_flat_folder_has_no_folders_and_class_folders_do(tmp_path: Path) -> None:
    picture = Image.fromarray(np.zeros((6, 6, 3), np.uint8))
    for name in ("b.png", "a.png"):
        picture.save(tmp_path / name)
    flat = read_images(tmp_path)
    assert (list(flat.names), flat.folders) == (["a.png", "b.png"], None)
    for name in ("dog", "cat", "empty"):
        (tmp_path / "sorted" / name).mkdir(parents=True)
        if name != "empty":
            picture.save(tmp_path / "sorted" / name / "1.png")
    tree = read_images(tmp_path / "sorted")
    assert tree.folders == ("cat", "dog")
    assert tree.folder_of is not None
    assert tree.folder_of.tolist() == [0, 1]
    batch = Batch(tuple(read_ahead(tree, [0, 1])))
    assert batch.inputs().shape == (2, 3, 6, 6)


def test_photographs_of_several_sizes_are_refused_before_anything_is_computed(
    tmp_path: Path,
) -> None:
    Image.fromarray(np.zeros((6, 6, 3), np.uint8)).save(tmp_path / "a.png")
    Image.fromarray(np.zeros((9, 7, 3), np.uint8)).save(tmp_path / "b.png")
    with pytest.raises(ValueError, match=r"a\.png has 6 x 6 pixels and b\.png has 7 x 9"):
        read_images(tmp_path)
    assert read_images(tmp_path, size=5).read(1).shape == (5, 5, 3)


def test_float_arrays_go_to_the_model_as_they_are(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(4, 7)).astype(np.float32)
    np.save(tmp_path / "values.npy", values)
    pictures = tuple(read_ahead(read_images(tmp_path / "values.npy"), [2, 0]))
    assert torch.equal(Batch(pictures).inputs(), torch.from_numpy(values[[2, 0]]))


def test_an_archive_may_bring_labels(tmp_path: Path) -> None:
    pixels = np.zeros((4, 5, 5), np.uint8)
    np.savez(tmp_path / "images.npz", images=pixels, labels=np.arange(4))
    images = read_images(tmp_path / "images.npz")
    assert images.labels is not None
    assert Batch(tuple(read_ahead(images, range(4)))).inputs().shape == (4, 1, 5, 5)
    np.savez(tmp_path / "bad.npz", images=pixels, labels=np.arange(3))
    with pytest.raises(ValueError, match="4 images"):
        read_images(tmp_path / "bad.npz")
    np.savez(tmp_path / "soft.npz", images=pixels, labels=np.full(4, 0.5))
    with pytest.raises(ValueError, match="class numbers"):
        read_images(tmp_path / "soft.npz")


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


def test_a_picture_of_an_image_is_shown_where_it_is_one() -> None:
    floats = ImageFiles(["a"], lambda index: np.full((3, 4, 5), 0.5, np.float32))
    shown = floats.shown("a")
    assert shown is not None
    assert shown.size == (5, 4)
    assert ImageFiles(["a"], lambda index: np.zeros(7, np.float32)).shown("a") is None
    assert floats.shown("b") is None
