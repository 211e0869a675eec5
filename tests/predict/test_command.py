"""`fenchel adapt` through the command line: classes, evidence, bad images, verdicts, deployment."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from fenchel.models import load_checkpoint, open_model

NOT_FOR_EQUALITY = ("batch", "image")


def rows_in(path: str | Path) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def lines_in(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_folders_from_zero_to_nine_give_the_true_error(digits: Any, command: Any) -> None:
    Path("names.txt").write_text("zero\none\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n")
    command(*digits.call("digits", "--classes", "names.txt", "--json"))
    assert command.code == 0, command.err
    rows = rows_in("predictions.csv")
    assert len(rows) == command.json()["images"] == 598
    by_file = {row["image"].split("/")[1]: row for row in rows}
    wrong = [
        int(by_file[f"{index:04d}.png"]["prediction"]) != label
        for index, label in enumerate(digits.labels)
    ]
    assert command.json()["error_percent"] == pytest.approx(100 * np.mean(wrong), abs=1e-3)
    assert command.json()["error_percent"] < 20
    assert all(row["label_name"] == row["image"].split("/")[0] for row in rows)
    eights = [row for row in rows if row["prediction"] == "8"]
    assert {row["name"] for row in eights} == {"eight"}
    without = digits.network()(torch.from_numpy(digits.images)[:, None] / 255).argmax(-1)
    source = {row["image"].split("/")[1]: int(row["source_prediction"]) for row in rows}
    assert [source[f"{index:04d}.png"] for index in range(598)] == without.tolist()


def test_folders_without_names_go_on_without_an_error_rate(digits: Any, command: Any) -> None:
    shutil.copytree(digits.folder / "flat", "photos/mine")
    command(*digits.call(Path("photos").resolve(), "--json"))
    assert command.code == 0
    assert command.json()["error_percent"] is None
    assert "--classes names.txt" in command.json()["labels"]


def test_twelve_folders_on_ten_classes_are_refused_before_anything_is_written(
    digits: Any, command: Any
) -> None:
    for number in range(12):
        Path(f"photos/kind{number}").mkdir(parents=True)
        Image.fromarray(digits.images[number]).save(f"photos/kind{number}/1.png")
    command(*digits.call(Path("photos").resolve()))
    assert command.code == 2
    assert "12 class folders" in command.err
    assert "10 outputs" in command.err
    assert not Path("predictions.csv").exists()


def test_every_row_carries_its_evidence(digits: Any, command: Any) -> None:
    further = ("--top-k", "3", "--probabilities", "--log", "log.jsonl", "--shuffle", "--json")
    command(*digits.call("flat", *further))
    rows, lines = rows_in("predictions.csv"), lines_in("log.jsonl")
    assert command.code == 0
    for row in rows:
        assert row["event"] == "updated"
        assert 0 <= int(row["prediction"]) < 10
        assert float(row["top1_confidence"]) == float(row["confidence"])
        tops = [float(row[f"top{rank}_confidence"]) for rank in (1, 2, 3)]
        assert tops == sorted(tops, reverse=True)
        p = [float(row[f"p{label}"]) for label in range(10)]
        assert sum(p) == pytest.approx(1, abs=1e-4)
        assert p[int(row["prediction"])] == max(p) == float(row["confidence"])
        assert p[int(row["top2"])] == tops[1]
        assert 0 <= float(row["entropy"]) <= np.log(10) + 1e-6
    assert len(lines) == command.json()["batches"] == 10
    for line in lines:
        members = [row for row in rows if row["batch"] == str(line["batch"])]
        assert line["images"] == len(members)
        entropy = np.mean([float(row["entropy"]) for row in members])
        assert line["entropy"] == pytest.approx(entropy, abs=1e-5)
        counts = np.bincount([int(row["prediction"]) for row in members], minlength=10)
        assert line["class_counts"] == counts.tolist()
        compared = [row for row in members if row["source_prediction"]]
        assert (line["agreement"] is None) == (not compared)
        if compared:
            same = [row["prediction"] == row["source_prediction"] for row in compared]
            assert line["agreement"] == pytest.approx(np.mean(same))
    assert [line["agreement"] is not None for line in lines] == [batch < 4 for batch in range(10)]


def test_the_source_predicts_always_or_never_where_that_is_asked_for(
    digits: Any, command: Any
) -> None:
    command(*digits.call("flat", "--source-predictions", "never", "--json"))
    assert command.json()["compared"] == 0
    assert "unknown" in command.json()["sentence"]
    command(*digits.call("flat", "--source-predictions", "always", "--force", "--json"))
    assert command.json()["compared"] == 598


def test_one_image_that_is_not_finite_leaves_the_other_rows_as_without_it(
    digits: Any, command: Any
) -> None:
    values = digits.images[:40, None].astype(np.float32) / 255
    np.save("fine.npy", np.delete(values, 5, 0))
    values[5, 0, 3, 3] = np.nan
    np.save("broken.npy", values)
    for name in ("fine", "broken"):
        images = Path(f"{name}.npy").resolve()
        command(*digits.call(images, "--batch-size", "10", "--out", f"{name}.csv"))
        assert command.code == 0
    broken, fine = rows_in("broken.csv"), rows_in("fine.csv")
    bad = broken.pop(5)
    assert (bad["event"], bad["prediction"]) == ("left-out", "")
    assert bad["reason"] == "1 of 64 values are not finite"
    assert [row["image"] for row in broken] == [str(k) for k in range(40) if k != 5]
    assert [{**row, "image": ""} for row in broken] == [{**row, "image": ""} for row in fine]


def test_a_corrupt_file_last_of_598_loses_nothing(digits: Any, command: Any) -> None:
    shutil.copytree(digits.folder / "flat", "photos")
    Path("photos/0597.png").write_bytes(b"no picture at all")
    command(*digits.call(Path("photos").resolve(), "--json"))
    assert command.code == 0
    rows = rows_in("predictions.csv")
    assert len(rows) == 598
    assert [row["event"] for row in rows].count("unreadable") == 1
    assert rows[-1]["event"] == "unreadable"
    assert "0597.png" in rows[-1]["reason"]
    assert all(row["prediction"] for row in rows[:-1])
    assert command.json()["unreadable"] == 1


def test_strict_stops_at_the_first_bad_image_and_keeps_the_rows_before(
    digits: Any, command: Any
) -> None:
    shutil.copytree(digits.folder / "flat", "photos")
    Path("photos/0400.png").write_bytes(b"")
    command(*digits.call(Path("photos").resolve(), "--strict"))
    assert command.code == 2
    assert "0400.png cannot be used" in command.err
    assert "Without --strict" in command.err
    assert len(rows_in("predictions.csv")) == 384


def test_nothing_is_overwritten_unless_told(digits: Any, command: Any) -> None:
    Path("predictions.csv").write_text("mine")
    command(*digits.call("flat"))
    assert command.code == 2
    assert "--force" in command.err
    assert Path("predictions.csv").read_text() == "mine"
    assert command(*digits.call("flat", "--force")).code == 0
    assert len(rows_in("predictions.csv")) == 598


@pytest.mark.parametrize("images", ["flat", "digits"])
def test_a_collapse_is_told_and_ends_with_exit_code_four(
    digits: Any, command: Any, images: str
) -> None:
    command(
        *digits.call(
            images, "--method", "conjugate", "--optimizer", "adam", "--learning-rate", "1.0",
            "--batch-size", "32", "--json",
        )
    )  # fmt: skip
    assert command.code == 4
    assert command.json()["verdict"] == "collapsed"
    assert command.json()["harmful"] is True
    assert "harm" in command.json()["sentence"]
    assert "Lower the learning rate" in command.json()["advice"]
    assert len(rows_in("predictions.csv")) == 598


def test_the_default_does_no_harm_at_a_rate_that_destroys_the_bare_step(
    digits: Any, command: Any
) -> None:
    call = digits.call("digits", "--optimizer", "adam", "--learning-rate", "1.0", "--json")
    command(*call)
    assert command.code == 0
    assert command.json()["error_percent"] < command.json()["source_error_percent"]
    assert command.json()["settings"]["protect"] == "auto"


def test_protection_is_told_what_it_may_do(digits: Any, command: Any) -> None:
    command(*digits.call("flat", "--protect", "off", "--json"))
    assert command.json()["settings"]["protect"] is False
    command(*digits.call("flat", "--protect", "loudly", "--out", "other.csv"))
    assert command.code == 2
    assert "--protect must be auto, watch or off" in command.err


def test_a_good_run_is_told_in_words(digits: Any, command: Any) -> None:
    command(*digits.call("digits"))
    assert "Adaptation helped:" in command.out
    command(*digits.call("flat", "--out", "flat.csv"))
    assert "Adaptation looks healthy:" in command.out
    command(*digits.call("flat", "--method", "source", "--out", "source.csv"))
    assert "Adaptation changed no class." in command.out


@pytest.mark.parametrize("statistics", ["batch", "0.2"])
def test_the_saved_model_predicts_alone_as_the_adapter_did(
    digits: Any, command: Any, statistics: str
) -> None:
    command(
        *digits.call(
            "digits", "--statistics", statistics, "--learning-rate", "0.01",
            "--save-adapted", "adapted.safetensors", "--json",
        )
    )  # fmt: skip
    found = command.json()
    alone = digits.network()
    alone.load_state_dict(load_file("adapted.safetensors"))
    inputs = torch.from_numpy(digits.images)[:, None].float() / 255
    wrong = (alone.eval()(inputs).argmax(-1) != torch.from_numpy(digits.labels)).float().mean()
    assert found["source_error_percent"] > found["error_percent"] + 10
    gained = found["error_percent"] - 100 * float(wrong)
    assert gained > -1
    if statistics == "batch":  # a running mix is worse while it still resembles the source's
        assert gained < 1
    card = Path("adapted.md").read_text()
    assert "| learning rate | 0.01 |" in card
    assert "statistics of the stream" in card or "batches of the stream" in card


def test_the_saved_model_of_a_checkpoint_is_a_checkpoint(digits: Any, command: Any) -> None:
    np.save("images.npy", np.random.default_rng(0).integers(0, 255, (40, 32, 32, 3), np.uint8))
    command(
        "adapt", "--model", "zoo:cifar10-resnet26-ce", "--images", "images.npy",
        "--save-adapted", "adapted.safetensors", "--json",
    )  # fmt: skip
    assert command.code == 0, command.err
    before, after = (
        load_checkpoint("zoo:cifar10-resnet26-ce"),
        load_checkpoint("adapted.safetensors"),
    )
    assert after.loss_spec == before.loss_spec
    assert after.metadata.recipe["adapted"]["method"] == "protected"
    assert after.digest != before.digest
    assert rows_in("predictions.csv")[0]["name"] in before.classes


def test_a_model_with_normalisation_in_front_is_saved_under_its_own_names(
    digits: Any, command: Any
) -> None:
    command(
        *digits.call("flat", "--mean", "0.1", "--std", "0.9", "--save-adapted", "a.safetensors")
    )
    assert command.code == 0, command.err
    opened = open_model(f"{digits.folder / 'network.py'}:build", weights="a.safetensors")
    assert type(opened.model) is type(digits.network())


def test_predictions_go_to_parquet(digits: Any, command: Any) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    command(*digits.call("flat", "--out", "p.parquet", "--save-every", "1"))
    assert command.code == 0, command.err
    command(*digits.call("flat", "--out", "p.csv"))
    table = parquet.read_table("p.parquet").to_pylist()
    rows = rows_in("p.csv")
    assert [row["image"] for row in table] == [row["image"] for row in rows]
    assert [row["prediction"] for row in table] == [int(row["prediction"]) for row in rows]
    assert isinstance(table[0]["confidence"], float)


def test_a_network_that_fails_is_told_in_one_line(digits: Any, command: Any) -> None:
    call = digits.call("flat")
    call.remove("--gray")
    command(*call)
    assert command.code == 2
    assert "Traceback" not in command.err
    assert "(1, 3, 8, 8)" in command.err
    assert "--gray" in command.err


def test_pages_show_the_stream(digits: Any, command: Any) -> None:
    command(*digits.call("digits", "--report", "page.html", "--json"))
    assert command.code == 0, command.err
    page = Path("page.html").read_text()
    assert "Adaptation helped" in page
    assert "<svg" in page
    assert "data:image" in page


def test_images_on_another_scale_run_with_a_warning(digits: Any, command: Any) -> None:
    np.save("bytes.npy", digits.images[:40, None].astype(np.float32))
    command(*digits.call(Path("bytes.npy").resolve()))
    assert command.code == 0
    assert "warning: the images are float32" in command.err
    assert "Divide by 255" in command.err
