"""A table as text, and its forms: terminal, Markdown and LaTeX for people, CSV for programs."""

from __future__ import annotations

import csv
import io
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Group
from rich.table import Table
from rich.text import Text

Emphasis = Literal["", "best", "row"]

HEADING_WIDTH = 12

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "λ": r"$\lambda$",
    "→": r"$\rightarrow$",
}


@dataclass(frozen=True)
class TableEntry:
    """One entry of a table: plain, the best of its kind, or the head of the row that stands out."""

    text: str
    emphasis: Emphasis = ""
    value: float = math.nan
    """The number to sort by, where the text shows one."""


@dataclass(frozen=True)
class Layout:
    """Rows of entries under headings; the first `names` columns are words, the others numbers."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[TableEntry, ...], ...]
    names: int = 1

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.headings):
                raise ValueError(
                    f"a row has an entry for each of {len(self.headings)} headings; got {len(row)}."
                )


def to_terminal(layout: Layout) -> Group:
    """The table for `rich` to print; text from data is never read as markup."""
    shown = Table(
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        header_style="bold underline",
    )
    for index, heading in enumerate(layout.headings):
        is_name = index < layout.names
        wrapped = Text(heading if is_name else _wrapped(heading))
        shown.add_column(wrapped, justify="left" if is_name else "right", no_wrap=True)
    for row in layout.rows:
        cells = [Text(entry.text, "bold" if entry.emphasis == "best" else "") for entry in row]
        shown.add_row(*cells, style="red" if row[0].emphasis == "row" else None)
    return Group(Text(layout.caption), shown)


def _wrapped(heading: str) -> str:
    """A heading over several lines, so that a column of numbers is no wider than it must be."""
    return textwrap.fill(heading, HEADING_WIDTH, break_long_words=False, break_on_hyphens=False)


def to_markdown(layout: Layout) -> str:
    """A pipe table, best entries in bold."""
    ruler = [":--"] * layout.names + ["--:"] * (len(layout.headings) - layout.names)
    lines = [[_markdown(heading) for heading in layout.headings], ruler]
    for row in layout.rows:
        lines.append(
            [
                f"**{_markdown(entry.text)}**"
                if entry.emphasis == "best"
                else _markdown(entry.text)
                for entry in row
            ]
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + f"\n{layout.caption}\n"


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*_<>`\[\]])", r"\\\1", text)


def to_latex(layout: Layout) -> str:
    """A `table` for the package booktabs, best entries in bold."""
    columns = "l" * layout.names + "r" * (len(layout.headings) - layout.names)
    body = "\n".join(
        "    " + " & ".join(_latex_entry(entry) for entry in row) + r" \\" for row in layout.rows
    )
    return (
        "\\begin{table}\n  \\centering\n"
        f"  \\caption{{{latex_escape(layout.caption)}}}\n"
        f"  \\begin{{tabular}}{{{columns}}}\n    \\toprule\n"
        f"    {' & '.join(map(latex_escape, layout.headings))} \\\\\n    \\midrule\n"
        f"{body}\n    \\bottomrule\n  \\end{{tabular}}\n\\end{{table}}\n"
    )


def latex_escape(text: str) -> str:
    r"""Text as LaTeX prints it.

    >>> latex_escape("50 % of a_b")
    '50 \\% of a\\_b'
    """
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_entry(entry: TableEntry) -> str:
    text = latex_escape(entry.text)
    return rf"\textbf{{{text}}}" if entry.emphasis == "best" else text


def to_csv(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Plain values in full precision, for programs; None is an empty field.

    >>> to_csv(["method", "mean"], [["bn", 0.5], ["source", None]])
    'method,mean\\nbn,0.5\\nsource,\\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)
    return text.getvalue()
