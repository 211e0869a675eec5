"""The CSV files of this folder, and single facts of them that the pages mention."""

from __future__ import annotations

import csv
import io
import math
from functools import cache
from pathlib import Path

from fenchel.bench.exports import unpacked
from fenchel.paper.gaussian_map_figure import map_verdict, read_map
from fenchel.report.several import MARK, told_apart

HERE = Path(__file__).parent

TABLES = {
    "table-poly": "the PolyLoss source",
    "table-ce": "the cross-entropy source",
    "table-squared": "the squared-loss source",
    "table-domain": "digits with PolyLoss",
    "table-ce-digits": "digits with cross-entropy",
    "table-severity": "all severities",
    "table-bce": "the binary cross-entropy source",
}

SETTING = ("optimizer", "learning_rate", "temperature")

Row = dict[str, str]
Trial = tuple[str, str, str, str, float, float, int, int]
"""Source, corruptions, method, optimiser, learning rate, temperature, batch size, images."""


def rows_of(name: str) -> list[Row]:
    """The rows of a CSV file here; none if it is not there."""
    files = [file for file in (HERE / f"{name}.csv", HERE / f"{name}.csv.gz") if file.is_file()]
    if not files:
        return []
    csv.field_size_limit(2**31 - 1)
    return list(csv.DictReader(io.StringIO(unpacked(files[0]), newline="")))


def not_run() -> list[str]:
    """The tables that are not here yet."""
    missing = [title for name, title in TABLES.items() if not lines_with_results(name)]
    return missing + ([] if lines_with_results("table-ce", "ImageNet-C") else ["ImageNet-C"])


def lines_with_results(name: str, start: str = "") -> list[str]:
    """The titles of the lines of a table that have been run, of those that begin so."""
    titles = dict.fromkeys(row["line"] for row in rows_of(name) if row["ours"])
    return [title for title in titles if title.startswith(start)]


def number(row: Row, column: str, digits: int = 2) -> str:
    """One number of a row as it is shown, `-` if it is not there."""
    return f"{float(row[column]):.{digits}f}" if row[column] else "-"


def with_spread(row: Row, column: str, digits: int = 2) -> str:
    """The same with the standard deviation over seeds, where there is one."""
    spread = row[f"{column}_spread"]
    return number(row, column, digits) + (f" ± {float(spread):.{digits}f}" if spread else "")


def interval(row: Row) -> str:
    """The paired difference to the conjugate with its interval, marked where the two are told apart."""
    if not row["minus_conjugate"]:
        return ""
    estimate, low, high = (f"{float(row[key]):+.2f}" for key in ("minus_conjugate", "low", "high"))
    mark = ""
    if row.get("streams_low"):  # empty for one stream; other tables have no such column
        sure = [float(row[key]) for key in ("p_holm", "streams_low", "streams_high")]
        mark = f" {MARK}" if told_apart(*sure) else ""
    return f"{estimate} [{low}, {high}]{mark}"


def over_streams(row: Row) -> str:
    """The interval over streams; in words where there was one stream alone."""
    low, high = (float(row[key] or "inf") for key in ("streams_low", "streams_high"))
    return "one stream" if math.isinf(low) else f"[{low:+.2f}, {high:+.2f}]"


def row_of(name: str, title: str, method: str) -> Row:
    """One row of a table."""
    (row,) = [r for r in rows_of(name) if (r["line"], r["method"]) == (title, method)]
    return row


def apart(name: str, title: str, method: str) -> str:
    """By how many points a method and the conjugate differ."""
    return f"{abs(float(row_of(name, title, method)['minus_conjugate'])):.2f}"


def compared_steps(source: str) -> str:
    """How many predictions of a source were compared with those of `step_checks.py`, and how many differ."""
    found = [row for row in rows_of("step-checks") if row["source"] == source]
    images, differ = (
        sum(int(row[key]) for row in found) for key in ("images", "predictions_that_differ")
    )
    return f"Of {images:,} predictions on {len(found)} streams {differ or 'none'}"


def behind(
    name: str, title: str, method: str, other: str = "conjugate", line_of_other: str | None = None
) -> int:
    """On how many corruptions a method has a larger error than another, means over seeds."""
    mine, theirs = (
        {
            row["shift"]: float(row["ours"])
            for row in rows_of(f"{name}-shifts")
            if (row["line"], row["method"]) == (line, who)
            and row["shift"] != "mean"
            and row["ours"]
        }
        for line, who in ((title, method), (line_of_other or title, other))
    )
    return sum(error > theirs[shift] for shift, error in mine.items())


def online(table_name: str, title: str, method: str, part: str) -> str:
    """The error in a part of the stream (`41_to_50`), at the setting a table has."""
    row = row_of(table_name, title, method)
    setting = [method, *(row[key] for key in SETTING)]
    (found,) = [
        each
        for each in rows_of("online")
        if [each["method"], *(each[key] for key in SETTING)] == setting
        and each["checkpoint"].endswith(table_name.removeprefix("table"))
    ]
    return number(found, f"batches_{part}")


def on_digits(source: str, target: str, method: str, rate: float, temperature: float = 1) -> Row:
    """What a network of SVHN reaches on other digits at one setting of Adam, over seeds."""
    (found,) = [
        row
        for row in rows_of("digits")
        if (row["checkpoint"], row["target"]) == (f"zoo:svhn-resnet26-{source}", target)
        and (row["method"], row["optimizer"]) == (method, "adam")
        and (float(row["learning_rate"]), float(row["temperature"])) == (rate, temperature)
    ]
    return found


def lowest_task_loss(method: str) -> list[int]:
    """The batches at which a method has the lowest task loss of all."""
    losses: dict[int, dict[str, float]] = {}
    for row in rows_of("fig-task-loss-curves"):
        losses.setdefault(int(row["batch"]), {})[row["method"]] = float(row["mean"])
    return [batch for batch, found in losses.items() if min(found, key=found.__getitem__) == method]


def gaussian_map() -> str:
    """What the map of the Gaussians says."""
    return " ".join(map_verdict(read_map(rows_of("fig-gaussian-map"))))


@cache
def _trials() -> dict[Trial, float]:
    return {
        (
            row["source"],
            row["corruptions"],
            row["method"],
            row["optimizer"],
            float(row["learning_rate"]),
            float(row["temperature"]),
            int(row["batch_size"]),
            int(row["images"]),
        ): float(row["error"])
        for row in rows_of("tuning")
    }


def trial(
    source: str,
    method: str,
    rate: float,
    temperature: float,
    images: int,
    batch_size: int = 100,
    optimizer: str = "sgd",
    corruptions: str = "validation",
) -> float:
    """The error of one setting on the validation corruptions, or on those of the test, in percent."""
    key = (source, corruptions, method, optimizer, rate, temperature, batch_size, images)
    return _trials()[key]
