"""Numbers typed by hand on the pages: where each of them is, and whether anything vouches for it.

What is generated is left out here: a page that differs from what its cells make of it is refused as a
whole. The rest has to be bound to its own cell (`typed_numbers.BOUND`), or to be a setting of a protocol.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from documented_text import FENCED, INDENTED, PAGES, ROOT

GENERATED = re.compile(
    r"<!-- \w+: written by.*?<!-- end of \w+ -->|<!-- measured: .*?<!-- end -->|\{\{.*?\}\}|\{%.*?%\}",
    re.DOTALL,
)
NO_PROSE = re.compile(r"`[^`]*`|\]\([^)]*\)")
UNIT = r"(?= ?%| times\b| points?\b| percent\b| (?:milli)?seconds?\b| minutes?\b| m?s\b| [MG]iB\b)"
NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
MEASURED = re.compile(rf"(?<![\w.])(?<!\d,)(?:\d[\d,]*\.\d+(?!\w|\.\d)|(?:{NUMBER}){UNIT})")

SETTING = re.compile(
    rf"\b(?:at|rates?|rate of|temperatures?|temperatures are|shifts|momentum|SGD) "
    rf"(?:(?:{NUMBER})(?:, | and ))*(?:{NUMBER})(?!\d|\.\d){UNIT.replace('?=', '?!', 1)}",
    re.IGNORECASE,
)
"""Settings in a row behind the word for them; each has to be one that something was run with."""
SETTING_PAGES = ("results/templates/", "docs/reports.md")
SETTING_COLUMNS = {
    "results/tuning.csv": ("learning_rate", "temperature"),
    "results/meta-checks.csv": ("rate", "momentum"),
    "results/fig-gaussian.csv": ("shift",),
}
CUSTOM = re.compile(r"\b95 % (?:percentile )?interval")
"""What an interval is by definition."""


def typed_pages() -> dict[str, str]:
    """Every text that people write: pages, and templates in the place of the page made of them."""
    pages = [page for page in PAGES if page.name != "results.md"]
    pages += sorted((ROOT / "results" / "templates").glob("*.md"))
    return {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in pages}


def prose(text: str) -> str:
    """The sentences and tables of a text, on one line, without what is generated and without blocks."""
    for left_out in (GENERATED, FENCED, INDENTED):
        text = left_out.sub(" … ", text)
    return " ".join(text.split())


@dataclass(frozen=True)
class Cell:
    """One number of a file of results: the row that has these values, and the column."""

    file: str
    row: Mapping[str, str]
    column: str

    def value(self) -> float:
        found = [
            row
            for row in rows(self.file)
            if all(str(row[key]) == text for key, text in self.row.items())
        ]
        assert len(found) == 1, f"{self} is {len(found)} rows"
        value = found[0][self.column]
        return float(value[0] if isinstance(value, list) else value)  # a median and its range


@cache
def rows(file: str) -> list[dict[str, Any]]:
    """The rows of a CSV file, or of the results of a benchmark."""
    path = ROOT / file
    if path.suffix == ".json":
        content = json.loads(path.read_text(encoding="utf-8"))
        return [{**row, "rounds": content["rounds"]} for row in content["results"]]
    with path.open(newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


@cache
def settings() -> frozenset[float]:
    """Every setting that a published run had."""
    return frozenset(
        float(row[column])
        for file, columns in SETTING_COLUMNS.items()
        for row in rows(file)
        for column in columns
        if row[column]
    )


@dataclass(frozen=True)
class Typed:
    """A piece of a page with numbers in braces, and for each the cell or the value behind it."""

    page: str
    piece: str
    behind: Sequence[Cell | Callable[[], float]]

    @property
    def numbers(self) -> list[str]:
        return re.findall(r"\{([^}]*)\}", self.piece)

    def places(self, text: str) -> list[range]:
        """Where its numbers are in the prose of its page."""
        plain = self.piece.replace("{", "").replace("}", "")
        begin = text.index(plain)
        found = []
        for number in re.finditer(r"\{([^}]*)\}", self.piece):
            braces = self.piece[: number.start()].count("{") + self.piece[: number.start()].count(
                "}"
            )
            start = begin + number.start() - braces
            found.append(range(start, start + len(number[1])))
        return found

    def complaints(self, text: str) -> list[str]:
        """What is wrong with it on its page."""
        plain = self.piece.replace("{", "").replace("}", "")
        if text.count(plain) != 1:
            return [f"{self.page} has {plain!r} {text.count(plain)} times, not once"]
        return [
            f"{self.page} says {number} in {plain!r}; it is {shown}"
            for number, behind in zip(self.numbers, self.behind, strict=True)
            if (shown := as_shown(behind, number)) != number
        ]


def as_shown(behind: Cell | Callable[[], float], like: str) -> str:
    """The value with as many digits as a number has."""
    value = behind.value() if isinstance(behind, Cell) else behind()
    digits = len(like.partition(".")[2])
    return f"{value:,.{digits}f}" if "," in like else f"{value:.{digits}f}"


def complaints(pages: Mapping[str, str], bound: Sequence[Typed]) -> list[str]:
    """Every typed number that nothing vouches for, and every one that its own cell contradicts."""
    found = []
    for page, whole in pages.items():
        text = prose(whole)
        masked = NO_PROSE.sub(lambda code: re.sub(r"\d", "#", code[0]), text)
        mine = [typed for typed in bound if typed.page == page]
        wrong = [complaint for typed in mine for complaint in typed.complaints(text)]
        found += wrong
        vouched = {
            place.start
            for typed in mine
            if not typed.complaints(text)
            for place in typed.places(text)
        }
        vouched |= {found.start() for found in CUSTOM.finditer(masked)}
        if page.startswith(SETTING_PAGES):
            vouched |= _settings_of(masked)
        for number in MEASURED.finditer(masked):
            if number.start() not in vouched:
                around = text[max(0, number.start() - 40) : number.end() + 25]
                found.append(f"{page}: nothing vouches for {number[0]} in {around!r}")
    return found


def _settings_of(text: str) -> set[int]:
    """Where settings of protocols are."""
    places = set()
    for found in SETTING.finditer(text):
        for number in re.finditer(NUMBER, found[0]):
            if float(number[0].replace(",", "")) in settings():
                places.add(found.start() + number.start())
    return places
