"""Cells and records: keys that name a result, and JSON without loss."""

import dataclasses
import json
import math

import numpy as np
import pytest

from fenchel.bench.record import Cell, CellShift, Record, pack_mask

SHIFT = CellShift(name="fog", severity=5, dataset="digits", split="test", digest="d1", origin="o")
CELL = Cell(
    data="digits",
    shifts=(SHIFT,),
    architecture="digit_network",
    loss="poly:epsilon=6",
    model_digest="m1",
    method="hard",
    options={"threshold": 0.75},
    temperature=1.0,
    optimizer="sgd",
    learning_rate=1e-3,
)
CHANGES = {
    "data": "other",
    "shifts": (dataclasses.replace(SHIFT, digest="d2"),),
    "metric": "mean-class-accuracy",
    "setting": "continual",
    "order": "sorted",
    "concentration": 0.1,
    "batch_size": 50,
    "rounds": 5,
    "bursts": "noise:share=0.2",
    "protect": "auto",
    "limit": 10,
    "seed": 1,
    "architecture": "resnet26",
    "loss": "cross_entropy",
    "model_digest": "m2",
    "method": "robust",
    "options": {"threshold": 0.5},
    "temperature": 2.0,
    "optimizer": "adam",
    "learning_rate": 1e-2,
    "steps": 2,
    "predict": "before",
    "statistics": 0.1,
    "parameters": ("conv",),
    "episodic": True,
    "plugins": {"my_method.py": "d3"},
    "model_files": {"network.py": "d4"},
    "logits": 0,
    "dim": 1,
}


def through_text(values):
    return json.loads(json.dumps(values, allow_nan=False))


@pytest.mark.parametrize("field", CHANGES)
def test_every_deciding_field_changes_the_key(field):
    changed = dataclasses.replace(CELL, **{field: CHANGES[field]})
    assert changed.key != CELL.key
    assert Cell.from_json(through_text(changed.to_json())) == changed


def test_the_changes_above_cover_every_field_but_the_label():
    assert {field.name for field in dataclasses.fields(Cell)} - set(CHANGES) == {"checkpoint"}


def test_labels_do_not_change_the_key():
    renamed = dataclasses.replace(CELL, checkpoint="elsewhere")
    moved = dataclasses.replace(CELL, shifts=(dataclasses.replace(SHIFT, origin="files"),))
    assert renamed.key == moved.key == CELL.key


def test_the_key_is_the_same_in_every_version_of_python():
    assert CELL.key == "c9500a7c930f8c901a3743b02d19661b"


def test_whole_numbers_count_the_same_with_and_without_a_point():
    assert dataclasses.replace(CELL, temperature=1).key == CELL.key


def test_a_record_survives_json():
    wrong = np.array([True, False, False, True, True])
    record = Record(
        cell=CELL,
        status="done",
        samples=5,
        wrong=3,
        batch_sizes=(3, 2),
        batch_wrong=(1, 2),
        batch_task_losses=(0.5, 0.25),
        shift_samples=(5,),
        shift_wrong=(3,),
        wrong_mask=pack_mask(wrong),
        health={"updates": 2},
        versions={"torch": "2"},
        timings={"seconds": 1.5},
        peak_memory=7,
    )
    again = Record.from_json(through_text(record.to_json()))
    assert again == record
    assert again.is_wrong.tolist() == wrong.tolist()
    assert again.error_percent == 60
    assert again.online_error_curve == pytest.approx((100 / 3, 60))
    assert again.seconds == 1.5


def test_the_deterministic_part_leaves_out_what_was_measured():
    record = Record(cell=CELL, status="failed", error="ValueError: no", timings={"seconds": 2.0})
    again = Record.from_json(through_text(record.deterministic_json()))
    assert again == dataclasses.replace(record, timings={})
    assert math.isnan(again.seconds)
    assert math.isnan(again.error_percent)


def test_a_task_loss_that_is_no_number_becomes_null():
    record = Record(cell=CELL, status="done", batch_task_losses=(1.0, math.inf, math.nan))
    assert record.to_json()["batch_task_losses"] == [1.0, None, None]
    again = Record.from_json(through_text(record.to_json()))
    assert math.isnan(again.batch_task_losses[1])


def test_mean_class_accuracy_weighs_every_class_that_occurs_alike():
    cell = dataclasses.replace(CELL, metric="mean-class-accuracy")
    record = Record(
        cell=cell,
        status="done",
        samples=12,
        wrong=6,
        class_samples=(10, 2, 0),
        class_wrong=(5, 1, 0),
    )
    skewed = dataclasses.replace(record, class_wrong=(6, 0, 0))
    assert record.error_percent == 50
    assert skewed.error_percent == 30
