"""The tables and the figure of docs/performance.md, from the numbers that the benchmarks wrote.

    python benchmarks/page.py [--results benchmarks/results] [--page docs/performance.md]

What stands between `<!-- measured: NAME -->` and `<!-- end -->` is written anew; the prose around it is not
touched. A benchmark without numbers leaves its place empty, and so does a missing table of errors
(`results/less-work.csv`).
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from common.picture import draw
from common.reporting import markdown
from fenchel.report.style import save

ROOT = Path(__file__).parents[1]
PLACE = re.compile(r"(<!-- measured: (\S+) -->\n).*?(<!-- end -->)", flags=re.DOTALL)
FIGURE = "figures/performance.svg"
ERRORS = "less-work"
HEADINGS = ("network", "model", "classes", "batch", "loss", "vary")
"""Columns that name the group a row belongs to, where all of its rows share them."""

Content = Mapping[str, Any]


def read_results(folder: Path) -> dict[str, Content]:
    """The written numbers of every benchmark, by its name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def tables(content: Content) -> str:
    """Protocol and machine, then a table for every network or kind of measurement."""
    lines = [f"{content['protocol']} Rounds: {content['rounds']}. {content['machine']}.", ""]
    groups = groupby(
        content["results"], key=lambda row: (row.get("network"), row.get("vary"), *row)
    )
    for _, members in groups:
        rows = list(members)
        shared = [key for key in HEADINGS if key in rows[0] and len({r[key] for r in rows}) == 1]
        if title := ", ".join(f"{key} {rows[0][key]}" for key in shared):
            lines += [f"**{title}**", ""]
        left = [{key: value for key, value in row.items() if key not in shared} for row in rows]
        table = markdown({**content, "results": left}).partition("\n")[2].strip()
        lines += [table, ""]
    return "\n".join(lines)


def errors(path: Path) -> str:
    """The error of every option beside its cost, as it was measured elsewhere."""
    if not path.exists():
        return ""
    with path.open(newline="") as file:
        headings, *rows = csv.reader(file)
    shown = [
        [heading.replace("_", " ") for heading in headings],
        *(map(_short, row) for row in rows),
    ]
    lines = ["| " + " | ".join(row) + " |" for row in shown]
    return "\n".join([lines[0], "|---" * len(headings) + "|", *lines[1:]]) + "\n"


def _short(value: str) -> str:
    """Long decimals as they are read."""
    return f"{float(value):.2f}" if re.fullmatch(r"\d+\.\d{3,}", value) else value


def filled(page: str, results: Mapping[str, Content], table_of_errors: str) -> str:
    """The page with every place filled from the results."""

    def fill(place: re.Match[str]) -> str:
        name = place[2]
        if name == ERRORS:
            inside = table_of_errors
        elif name == "figure":
            drawn = {"step", "memory"} <= results.keys()
            inside = f"![Time, memory and growth of a step]({FIGURE})\n" if drawn else ""
        else:
            inside = tables(results[name]) if name in results else ""
        return f"{place[1]}{inside}{place[3]}"

    return PLACE.sub(fill, page)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--errors", type=Path, default=ROOT / "results" / f"{ERRORS}.csv")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "performance.md")
    options = parser.parse_args()
    results = read_results(options.results)
    options.page.write_text(filled(options.page.read_text(), results, errors(options.errors)))
    if {"step", "memory"} <= results.keys():
        save(draw(results), options.page.parent / FIGURE)
    print(f"{options.page}: {', '.join(results) or 'no numbers yet'}")


if __name__ == "__main__":
    main()
