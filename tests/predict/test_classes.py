"""Which class a folder means, and what the classes are called."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fenchel.predict import ImageFiles, labelled, read_classes
from fenchel.wnids import wnids


def in_folders(*folders: str) -> ImageFiles:
    """One image per folder."""
    names = [f"{folder}/1.png" for folder in folders]
    where = np.arange(len(folders))
    return ImageFiles(names, lambda i: np.zeros(1), folders=folders, folder_of=where)


@pytest.mark.parametrize(
    ("folders", "count", "names", "labels", "how"),
    [
        (("bee", "ant"), 3, ("ant", "cat", "bee"), [2, 0], "by name"),
        (("Polar_Bear", "sea-lion"), 2, ("sea lion", "polar bear"), [1, 0], "by name"),
        (("2", "0", "10"), 11, None, [2, 0, 10], "by number"),
        (("2", "0"), 3, ("ant", "bee", "cat"), [2, 0], "by number"),
        (("eight", "two"), 10, None, [8, 2], "by number"),
        (("eight", "two"), 10, tuple("0123456789"), [8, 2], "by number"),
        ((wnids()[7], wnids()[1]), 1000, None, [7, 1], "by wnid"),
        (("bee", "dog"), 2, ("ant", "bee"), [1, -1], "dog is none of them"),
    ],
)
def test_folders_are_matched(
    folders: tuple[str, ...],
    count: int,
    names: tuple[str, ...] | None,
    labels: list[int],
    how: str,
) -> None:
    found = labelled(in_folders(*folders), count, names)
    assert found.images.labels is not None
    assert found.images.labels.tolist() == labels
    assert how in found.how


def test_folders_that_mean_nothing_give_no_labels_and_the_reason() -> None:
    found = labelled(in_folders("ant", "bee"), 2, None)
    assert found.images.labels is None
    assert "no error rate" in found.how
    assert "classes=names.txt" in found.how
    found = labelled(in_folders("ant", "bee"), 2, ("x", "y"))
    assert found.images.labels is None
    assert "no folder (ant, bee) has the name of a class (x, y)" in found.how


def test_folders_in_sorted_order_are_classes_where_the_user_says_so() -> None:
    found = labelled(in_folders("ant", "bee"), 3, None, folder_order=True)
    assert found.images.labels is not None
    assert found.images.labels.tolist() == [0, 1]
    assert found.names == ("ant", "bee", "")


@pytest.mark.parametrize("folders", [12 * ("x",), ("10",), ("1", "12")])
def test_more_folders_than_classes_and_numbers_beyond_them_are_refused(
    folders: tuple[str, ...],
) -> None:
    with pytest.raises(ValueError, match="10 outputs"):
        labelled(in_folders(*folders), 10, None)


def test_labels_outside_the_outputs_are_refused() -> None:
    pile = ImageFiles(["a", "b"], lambda i: np.zeros(1), labels=np.array([1, 10]))
    with pytest.raises(ValueError, match=r"labels must be class numbers 0 to 9.*got 10"):
        labelled(pile, 10, None)


def test_as_many_names_as_outputs() -> None:
    with pytest.raises(ValueError, match="2 names, and the model has 3 outputs"):
        labelled(in_folders("a"), 3, ("a", "b"))


def test_names_are_read_from_text_and_json(tmp_path: Path) -> None:
    text, listed = tmp_path / "names.txt", tmp_path / "list.json"
    text.write_text("ant\n\nbee \n")
    assert read_classes(text) == ("ant", "bee")
    listed.write_text(json.dumps(["ant", "bee"]))
    assert read_classes(listed) == ("ant", "bee")
    listed.write_text(json.dumps({"1": "bee", "0": "ant"}))
    assert read_classes(listed) == ("ant", "bee")
    listed.write_text(json.dumps({"0": ["n01440764", "tench"], "1": ["n01443537", "goldfish"]}))
    assert read_classes(listed) == ("tench", "goldfish")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.txt", "", "holds no class name"),
        ("a.json", "{", "is no JSON"),
        ("a.json", '{"ant": 0}', "maps the numbers 0 to 0"),
        ("a.json", "3", "class names are a list"),
        ("a.txt", b"\xff\xfe", "UTF-8"),
    ],
)
def test_a_bad_file_of_names_is_told(
    tmp_path: Path, name: str, content: str | bytes, told: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=told):
        read_classes(file)
    with pytest.raises(FileNotFoundError, match="one name per line"):
        read_classes(tmp_path / "nowhere.txt")
