"""What every benchmark prints and writes: rows with machine and protocol, as Markdown and as JSON.

{"benchmark": ..., "machine": ..., "protocol": ..., "rounds": ..., "results": [{...}, ...]}
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.measuring import machine

Row = Mapping[str, Any]


def parser_of(doc: str | None, *, rounds: int) -> argparse.ArgumentParser:
    """The options that all benchmarks share; the first line of the docstring describes them."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=rounds, help=f"default: {rounds}")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers here")
    return parser


def publish(
    name: str, protocol: str, results: Sequence[Row], options: argparse.Namespace
) -> dict[str, Any]:
    """Print the results as a table, and write them where asked."""
    content = {
        "benchmark": name,
        "machine": machine(),
        "protocol": protocol,
        "rounds": options.rounds,
        "quick": options.quick,
        "results": list(results),
    }
    print(markdown(content))
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    return content


def markdown(content: Mapping[str, Any]) -> str:
    """Tables of the results, one for every set of columns, with machine and protocol above."""
    lines = [f"{content['protocol']} Rounds: {content['rounds']}. {content['machine']}.", ""]
    columns: list[str] = []
    for row in content["results"]:
        if list(row) != columns:
            columns = list(row)
            lines += ["", "| " + " | ".join(columns).replace("_", " ") + " |"]
            lines.append("|---" * len(columns) + "|")
        lines.append("| " + " | ".join(shown(key, value) for key, value in row.items()) + " |")
    return "\n".join(lines).replace("\n\n\n", "\n\n")


def shown(column: str, value: Any) -> str:
    """A value as a reader wants it: bytes in MiB, ratios with their range."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        middle, low, high = value
        return f"{middle:.2f} ({low:.2f}-{high:.2f})"
    if column.endswith("bytes"):
        return f"{value / 2**20:,.1f} MiB"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
