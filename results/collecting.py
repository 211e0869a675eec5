"""What `fenchel reproduce` and `fenchel tune` left, taken over as CSV files and figures."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import fmean

from hostile import hostile_tables
from reading import HERE, SETTING, Row, Trial, rows_of
from retabling import tables
from verdicts import claims_csv

from fenchel.bench.exports import as_csv, packed
from fenchel.bench.store import Store
from fenchel.data.corruptions import TEST_CORRUPTIONS, VALIDATION_CORRUPTIONS
from fenchel.files import write_atomically
from fenchel.models import read_metadata, zoo
from fenchel.report.layout import to_csv

FIGURES = HERE.parent / "docs" / "figures"
TRIAL = (
    "source", "corruptions", "method", "optimizer", "learning_rate", "temperature", "batch_size", "images",
)  # fmt: skip
CORRUPTIONS = {"validation": VALIDATION_CORRUPTIONS, "test": TEST_CORRUPTIONS}
BATCHES, PART, SEVERITY = 50, 10, 5
"""Of a stream of 5,000 images, of each part of which the error is shown, and of the streams that count."""


def collect(folder: Path) -> None:
    """Copy what is not made of cells and figures, and export the stores; what was not run stays."""
    for file in sorted(folder.glob("*/*.csv")):
        shutil.copyfile(file, HERE / file.name)
    FIGURES.mkdir(exist_ok=True)
    for file in sorted(folder.glob("*/*.svg")):
        shutil.copyfile(file, FIGURES / file.name)
    for path in sorted(folder.glob("**/*.sqlite")):
        with Store.open_readonly(path) as store:
            file = HERE / f"cells-{path.stem}.csv.gz"
            write_atomically(file, packed(as_csv(store), file))


def derived() -> dict[Path, str]:
    """Every CSV file that is made of the cells, or of the networks of the zoo, by its place."""
    made = {
        "sources.csv": sources_csv(),
        "tuning.csv": tuning_csv(),
        "online.csv": online_csv(),
        "digits.csv": digits_csv(),
        **tables(),
        **hostile_tables(),
        "claims.csv": claims_csv(),
    }
    return {HERE / name: text for name, text in made.items()}


def tuning_csv() -> str:
    """Every trial and check: the mean over the validation or the test corruptions, by method and setting."""
    errors: dict[Trial, dict[str, list[float]]] = {}
    files = (*HERE.glob("cells-tuning-*.csv.gz"), *HERE.glob("cells-checks-*.csv.gz"))
    for name in sorted(file.name.removesuffix(".csv.gz") for file in files):
        source = name.removeprefix("cells-tuning-").removeprefix("cells-checks-")
        for row in rows_of(name):
            setting = (row["optimizer"], float(row["learning_rate"]), float(row["temperature"]))
            stream = (int(row["batch_size"]), int(row["samples"]))
            (shift,) = json.loads(row["shifts"])
            part = next(part for part, names in CORRUPTIONS.items() if shift["name"] in names)
            for method in _methods(row):
                found = errors.setdefault((source, part, method, *setting, *stream), {})
                found.setdefault(shift["name"], []).append(float(row["error_percent"]))
    rows = [
        (*trial, round(fmean(map(fmean, found.values())), 6))
        for trial, found in sorted(errors.items())
        if len(found) == len(CORRUPTIONS[trial[1]])
    ]
    return to_csv((*TRIAL, "error"), rows)


def online_csv() -> str:
    """The error along the streams of CIFAR-10-C at severity 5, ten batches at a time, by setting."""
    errors: dict[tuple[str, ...], list[list[float]]] = {}
    for row in rows_of("cells-results"):
        wrong, sizes, shifts = (
            json.loads(row[key]) for key in ("batch_wrong", "batch_sizes", "shifts")
        )
        as_tested = all(shift["severity"] == SEVERITY for shift in shifts)
        if row["data"] != "cifar10-c" or len(sizes) != BATCHES or not as_tested:
            continue
        parts = [
            100 * sum(wrong[start : start + PART]) / sum(sizes[start : start + PART])
            for start in range(0, BATCHES, PART)
        ]
        for method in _methods(row):
            setting = (row["checkpoint"], method, *(row[key] for key in SETTING))
            errors.setdefault(setting, []).append(parts)
    rows = [
        (*setting, len(found), *(round(fmean(part), 6) for part in zip(*found, strict=True)))
        for setting, found in sorted(errors.items())
    ]
    headings = ("checkpoint", "method", *SETTING, "streams")
    ends = range(PART, BATCHES + 1, PART)
    return to_csv((*headings, *(f"batches_{end - PART + 1}_to_{end}" for end in ends)), rows)


def digits_csv() -> str:
    """Every setting that the networks of SVHN were adapted with on other digits: the error over seeds."""
    errors: dict[tuple[str, ...], list[float]] = {}
    for row in rows_of("cells-results"):
        if row["checkpoint"].startswith("zoo:svhn-"):
            target = row["data"].partition(":")[0]
            for method in _methods(row):
                setting = (row["checkpoint"], target, method, *(row[key] for key in SETTING))
                errors.setdefault(setting, []).append(float(row["error_percent"]))
    rows = [
        (*setting, len(found), round(fmean(found), 6), min(found), max(found))
        for setting, found in sorted(errors.items())
    ]
    headings = ("checkpoint", "target", "method", *SETTING, "seeds", "error", "lowest", "highest")
    return to_csv(headings, rows)


def sources_csv() -> str:
    """The networks of the zoo: how they were trained, and how well they do on their test images."""
    rows = []
    for name in zoo.names():
        metadata = read_metadata(zoo.path_of(name))
        accuracy = 100 * metadata.metrics["test_accuracy"]
        recipe = metadata.recipe
        rows.append(
            (name, metadata.architecture, metadata.data, metadata.loss, metadata.epoch,
             recipe["learning_rate"], recipe["seed"], round(accuracy, 6))
        )  # fmt: skip
    headings = ("name", "architecture", "data", "loss", "epochs", "learning_rate", "seed")
    return to_csv((*headings, "test_accuracy"), rows)


def _methods(row: Row) -> list[str]:
    """The methods whose run a cell is: several where their objectives coincide."""
    return sorted({method for method, _ in json.loads(row["asked"])})
