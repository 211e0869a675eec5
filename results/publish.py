"""The published results: `docs/results.md` and the README's headline, from the CSV files in this folder.

    python results/publish.py collect reproduce    # take over what `fenchel reproduce` left there
    python results/publish.py                      # write the pages

Every number on the pages comes out of a CSV file here; the words around them are in `templates`.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import jinja2

from fenchel.bench.exports import as_csv
from fenchel.bench.store import Store
from fenchel.bench.tuned import read_tuned
from fenchel.data.corruptions import VALIDATION_CORRUPTIONS
from fenchel.models import read_metadata, zoo
from fenchel.models.files import write_atomically
from fenchel.report.layout import Entry, Layout, to_csv, to_markdown

HERE = Path(__file__).parent
ROOT = HERE.parent
DOCS = ROOT / "docs"
FIGURES = DOCS / "figures"
HEADLINE = re.compile(r"(<!-- headline[^>]*-->\n).*?(<!-- end of headline -->)", re.DOTALL)

TRIAL = (
    "source", "method", "optimizer", "learning_rate", "temperature", "batch_size", "images",
)  # fmt: skip

TABLES = {
    "table-poly": "the PolyLoss source",
    "table-ce": "the cross-entropy source",
    "table-squared": "the squared-loss source",
    "table-domain": "digits",
    "table-severity": "all severities",
}
BATCHES, PART = 50, 10
"""Of a stream of 5,000 images, and of each part of which the error is shown."""

Row = dict[str, str]
Trial = tuple[str, str, str, float, float, int, int]


# --- taking over ---------------------------------------------------------------------------------


def collect(folder: Path) -> None:
    """Copy tables and figures, and export the stores; what has not been run stays as it was."""
    for file in sorted(folder.glob("*/*.csv")):
        shutil.copyfile(file, HERE / file.name)
    FIGURES.mkdir(exist_ok=True)
    for file in sorted(folder.glob("*/*.svg")):
        shutil.copyfile(file, FIGURES / file.name)
    for path in sorted(folder.glob("**/*.sqlite")):
        with Store.open_readonly(path) as store:
            write_atomically(HERE / f"cells-{path.stem}.csv", as_csv(store).encode())
    write_atomically(HERE / "sources.csv", sources_csv().encode())
    write_atomically(HERE / "tuning.csv", tuning_csv().encode())
    write_atomically(HERE / "online.csv", online_csv().encode())


def tuning_csv() -> str:
    """Every trial on the validation corruptions: the mean over them, by method and setting."""
    errors: dict[Trial, dict[str, float]] = {}
    for file in sorted((*HERE.glob("cells-tuning-*.csv"), *HERE.glob("cells-checks-*.csv"))):
        source = file.stem.rpartition("-")[2]
        for row in rows_of(file.stem):
            setting = (row["optimizer"], float(row["learning_rate"]), float(row["temperature"]))
            stream = (int(row["batch_size"]), int(row["samples"]))
            for method, _ in json.loads(row["asked"]):
                found = errors.setdefault((source, method, *setting, *stream), {})
                found[row["shifts"]] = float(row["error_percent"])
    rows = [
        (*trial, round(sum(found.values()) / len(found), 6))
        for trial, found in sorted(errors.items())
        if len(found) == len(VALIDATION_CORRUPTIONS)
    ]
    return to_csv((*TRIAL, "error"), rows)


def online_csv() -> str:
    """The error along the streams of CIFAR-10-C, ten batches at a time: means over all cells of a setting."""
    errors: dict[tuple[str, ...], list[list[float]]] = {}
    for row in rows_of("cells-results"):
        wrong, sizes = (json.loads(row[key]) for key in ("batch_wrong", "batch_sizes"))
        if row["data"] != "cifar10-c" or len(sizes) != BATCHES:
            continue
        parts = [
            100 * sum(wrong[start : start + PART]) / sum(sizes[start : start + PART])
            for start in range(0, BATCHES, PART)
        ]
        for method, _ in json.loads(row["asked"]):
            setting = (row["checkpoint"], method, row["learning_rate"], row["temperature"])
            errors.setdefault(setting, []).append(parts)
    rows = [
        (*setting, len(found), *(round(fmean(part), 6) for part in zip(*found, strict=True)))
        for setting, found in sorted(errors.items())
    ]
    headings = ("checkpoint", "method", "learning_rate", "temperature", "streams")
    ends = range(PART, BATCHES + 1, PART)
    return to_csv((*headings, *(f"batches_{end - PART + 1}_to_{end}" for end in ends)), rows)


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


# --- writing -------------------------------------------------------------------------------------


def rows_of(name: str) -> list[Row]:
    """The rows of a CSV file here; none if it is not there."""
    file = HERE / f"{name}.csv"
    if not file.is_file():
        return []
    csv.field_size_limit(2**31 - 1)
    with file.open(newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


def not_run() -> list[str]:
    """The tables that are not here yet."""
    return [title for name, title in TABLES.items() if not rows_of(name)]


def lines_with_results(name: str) -> list[str]:
    """The titles of the lines of a table that have been run."""
    return list(dict.fromkeys(row["line"] for row in rows_of(name) if row["ours"]))


def number(row: Row, column: str, digits: int = 2) -> str:
    """One number of a row as it is shown, `-` if it is not there."""
    return f"{float(row[column]):.{digits}f}" if row[column] else "-"


def with_spread(row: Row, column: str, digits: int = 2) -> str:
    """The same with the standard deviation over seeds, where there is one."""
    spread = row[f"{column}_spread"]
    return number(row, column, digits) + (f" ± {float(spread):.{digits}f}" if spread else "")


def interval(row: Row) -> str:
    """The paired difference to the conjugate with its interval."""
    if not row["minus_conjugate"]:
        return ""
    estimate, low, high = (f"{float(row[key]):+.2f}" for key in ("minus_conjugate", "low", "high"))
    return f"{estimate} [{low}, {high}]"


def row_of(name: str, title: str, method: str) -> Row:
    """One row of a table."""
    (row,) = [r for r in rows_of(name) if (r["line"], r["method"]) == (title, method)]
    return row


def behind(name: str, title: str, method: str, other: str = "conjugate") -> int:
    """On how many corruptions a method has a larger error than another, means over seeds."""
    errors = {
        (row["method"], row["shift"]): float(row["ours"])
        for row in rows_of(f"{name}-shifts")
        if row["line"] == title and row["shift"] != "mean"
    }
    return sum(
        error > errors[other, shift] for (who, shift), error in errors.items() if who == method
    )


def online(table_name: str, title: str, method: str, part: str) -> str:
    """The error in a part of the stream (`41_to_50`), at the setting a table has."""
    row = row_of(table_name, title, method)
    setting = (method, row["learning_rate"], row["temperature"])
    (found,) = [
        each
        for each in rows_of("online")
        if (each["method"], each["learning_rate"], each["temperature"]) == setting
        and each["checkpoint"].endswith(table_name.removeprefix("table"))
    ]
    return number(found, f"batches_{part}")


def lowest_task_loss(method: str) -> list[int]:
    """The batches at which a method has the lowest task loss of all."""
    losses: dict[int, dict[str, float]] = {}
    for row in rows_of("fig-task-loss-curves"):
        losses.setdefault(int(row["batch"]), {})[row["method"]] = float(row["mean"])
    return [batch for batch, found in losses.items() if min(found, key=found.__getitem__) == method]


def table(name: str, titles: Sequence[str] | None = None) -> str:
    """Methods by line: ours, the paper's, and the paired difference to the conjugate."""
    rows = {(row["line"], row["method"]): row for row in rows_of(name)}
    titles = titles or lines_with_results(name)
    methods = dict.fromkeys(method for title, method in rows if title in titles)
    headings = ["method"]
    for title in titles:
        headings += [f"{title}: ours", "paper", "minus conjugate [95 %]"]
    entries = []
    for method in methods:
        entry = [Entry(method)]
        for title in titles:
            entry += _entries(rows.get((title, method)), title, rows)
        entries.append(tuple(entry))
    return to_markdown(Layout("", tuple(headings), tuple(entries))).rstrip() + "\n"


def _entries(row: Row | None, title: str, rows: dict[tuple[str, str], Row]) -> list[Entry]:
    if row is None or not row["ours"]:
        return [Entry("-"), Entry("-"), Entry("")]
    lowest = min(
        float(other["ours"]) for key, other in rows.items() if key[0] == title and other["ours"]
    )
    best = float(row["ours"]) == lowest
    return [
        Entry(with_spread(row, "ours"), "best" if best else ""),
        Entry(with_spread(row, "paper")),
        Entry(interval(row)),
    ]


def sources() -> str:
    """The networks of the zoo as a table."""
    rows = tuple(
        (
            Entry(f"zoo:{row['name']}"),
            Entry(row["loss"]),
            Entry(row["epochs"]),
            Entry(number(row, "test_accuracy")),
        )
        for row in rows_of("sources")
    )
    layout = Layout("", ("network", "training loss", "epochs", "test accuracy (%)"), rows, 2)
    return to_markdown(layout).rstrip() + "\n"


def trials(source: str) -> str:
    """The rates on the longer streams, at temperature 1 and at the best one; what was chosen in bold."""
    chosen = read_tuned(zoo.folder() / f"cifar10-resnet26-{source}.tuned.json")
    grid, short = chosen.protocol["grid"], chosen.protocol["screening_limit"]
    rates, (long,) = grid["learning_rate"], chosen.protocol["limit"]
    headings = ["method", *(f"T = 1: {rate:g}" for rate in rates)]
    headings += [f"best T: {rate:g}" for rate in rates]
    rows = []
    for choice in chosen.choices:
        method = choice.method
        best = [_best(grid["temperature"], source, method, rate, short) for rate in rates]
        plain = [trial(source, method, rate, 1, long) for rate in rates]
        tuned = [trial(source, method, *setting, long) for setting in zip(rates, best, strict=True)]
        texts = [f"{error:.2f}" for error in plain]
        texts += [f"{error:.2f} ({t:g})" for error, t in zip(tuned, best, strict=True)]
        least = [min(plain)] * len(plain) + [min(tuned)] * len(tuned)
        entries = zip(texts, [*plain, *tuned], least, strict=True)
        rows.append((Entry(method), *(Entry(t, "best" if e == b else "") for t, e, b in entries)))
    return to_markdown(Layout("", tuple(headings), tuple(rows))).rstrip() + "\n"


def _best(
    temperatures: Sequence[float], source: str, method: str, rate: float, images: int
) -> float:
    return min(temperatures, key=lambda each: trial(source, method, rate, each, images))


@cache
def _trials() -> dict[Trial, float]:
    return {
        (
            row["source"],
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
) -> float:
    """The validation error of one setting, in percent."""
    return _trials()[source, method, optimizer, rate, temperature, batch_size, images]


def learned_errors() -> str:
    """Learned objectives and their fits beside the baselines, with the paired difference."""
    rows = rows_of("fig-meta-errors")
    lowest = {
        key: min(float(row["ours"]) for row in rows if (row["source"], row["task_loss"]) == key)
        for key in {(row["source"], row["task_loss"]) for row in rows}
    }
    entries = tuple(
        (
            *(Entry(row[key]) for key in ("source", "task_loss", "objective")),
            Entry(with_spread(row, "ours"), "best" if float(row["ours"]) == least else ""),
            Entry(number(row, "paper")),
            Entry(interval(row)),
        )
        for row in rows
        for least in [lowest[row["source"], row["task_loss"]]]
    )
    headings = ("source", "task loss", "objective", "ours", "paper", "minus conjugate [95 %]")
    return to_markdown(Layout("", headings, entries, 3)).rstrip() + "\n"


def learned_fits() -> str:
    """Which formula explains the learned objectives."""
    entries = tuple(
        (
            *(Entry(row[key]) for key in ("source", "task_loss")),
            Entry(with_spread(row, "r2_entropy", 3)),
            Entry(with_spread(row, "r2_quadratic", 3)),
            Entry(with_spread(row, "aic_quadratic_minus_entropy", 0)),
            Entry(f"{row['entropy_better']} of {row['seeds']}"),
            Entry(with_spread(row, "temperature", 1)),
            Entry(with_spread(row, "r2_linear", 3)),
            Entry(with_spread(row, "beyond_linear_entropy", 3)),
            Entry(with_spread(row, "beyond_linear_quadratic", 3)),
        )
        for row in rows_of("fig-meta-fits")
    )
    headings = (
        "source", "task loss", "R² entropy", "R² quadratic", "AIC quadratic - entropy",
        "seeds with entropy better", "fitted T", "R² linear", "beyond it: entropy",
        "beyond it: quadratic",
    )  # fmt: skip
    return to_markdown(Layout("", headings, entries, 2)).rstrip() + "\n"


def render(template: str) -> str:
    """A template with the numbers filled in."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    helpers: dict[str, Any] = {
        "has": lambda name: bool(rows_of(name)),
        "not_run": not_run,
        "table": table,
        "ours": lambda *place: number(row_of(*place), "ours"),
        "paper": lambda *place: number(row_of(*place), "paper"),
        "behind": behind,
        "lowest_task_loss": lowest_task_loss,
        "online": online,
        "sources": sources,
        "trials": trials,
        "trial": lambda *setting, **stream: f"{trial(*setting, **stream):.2f}",
        "learned_errors": learned_errors,
        "learned_fits": learned_fits,
        "rows": rows_of,
        "number": number,
    }
    return environment.get_template(template).render(**helpers)


def pages() -> dict[Path, str]:
    """Every page that is made from the results, by its file."""
    readme = ROOT / "README.md"
    headline = render("headline.md")
    text = HEADLINE.sub(
        lambda found: f"{found[1]}{headline}{found[2]}", readme.read_text(encoding="utf-8")
    )
    return {DOCS / "results.md": render("results.md"), readme: text}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", nargs="?", choices=("collect",), help="take over results first")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("reproduce"))
    arguments = parser.parse_args()
    if arguments.command == "collect":
        collect(arguments.folder)
    for file, text in pages().items():
        write_atomically(file, text.encode())
        print(f"written: {file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
