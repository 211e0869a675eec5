"""The four forms of a table, and text from data that tries to be markup."""

from __future__ import annotations

import csv
import io

import pytest
from rich.console import Console

from fenchel.report.layout import Layout, TableEntry, to_csv, to_latex, to_markdown, to_terminal
from fenchel.report.tables import error_table

TABLE = error_table(
    {("hard", "motion_blur"): [3.0, 4.0], ("conjugate", "motion_blur"): [1.0, 2.0]},
    ["hard", "conjugate"],
    ["motion_blur"],
)
LAYOUT = TABLE.layout("error in %")


def printed(layout: Layout) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(to_terminal(layout))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_latex_is_a_booktabs_table_with_the_best_in_bold() -> None:
    text = to_latex(LAYOUT)
    for word in (r"\toprule", r"\midrule", r"\bottomrule", r"\begin{tabular}{lrr}"):
        assert word in text
    assert r"conjugate & \textbf{1.5 $\pm$ 0.7} & \textbf{1.5 $\pm$ 0.7} \\" in text
    assert r"hard & 3.5 $\pm$ 0.7 & 3.5 $\pm$ 0.7 \\" in text
    assert r"\caption{error in \%}" in text
    assert text.count(r"\begin") == text.count(r"\end")


def test_markdown_is_a_pipe_table_with_the_best_in_bold() -> None:
    lines = to_markdown(LAYOUT).splitlines()
    assert lines[0] == "| method | motion blur | mean |"
    assert lines[1] == "| :-- | --: | --: |"
    assert lines[3] == "| conjugate | **1.5 ± 0.7** | **1.5 ± 0.7** |"


def test_the_terminal_shows_every_number() -> None:
    text = printed(LAYOUT)
    assert "error in %" in text
    assert text.count("3.5 ± 0.7") == 2


def test_csv_has_full_precision_and_quotes_what_it_must() -> None:
    assert ("hard", "motion_blur", 3.5, 0.5**0.5, 2) in TABLE.numbers()
    text = to_csv(["name", "value"], [['a,"b"\n', 1 / 3], ["c", None]])
    assert list(csv.reader(io.StringIO(text))) == [
        ["name", "value"],
        ['a,"b"\n', repr(1 / 3)],
        ["c", ""],
    ]


@pytest.mark.parametrize("nasty", ["[red]x[/red]", "a|b", "a_b&c%$#{}~^\\", "**x**", "<b>"])
def test_text_from_data_is_never_markup(nasty: str) -> None:
    layout = Layout(nasty, ("name", "value"), ((TableEntry(nasty), TableEntry("1")),))
    assert nasty in printed(layout)
    row = next(line for line in to_markdown(layout).splitlines() if line.endswith("| 1 |"))
    assert row.replace("\\|", "").count("|") == 3
    assert "**" not in row.replace("\\*", "")
    body = to_latex(layout).split(r"\midrule")[1].split(r"\bottomrule")[0]
    assert body.replace(r"\&", "").count("&") == 1
    for special in "%$#":
        assert f"\\{special}" in body or special not in nasty


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="2 headings"):
        Layout("", ("a", "b"), ((TableEntry("x"),),))


def test_ties_are_all_bold_and_missing_cells_are_dashes() -> None:
    table = error_table({("a", "x"): [1.0], ("b", "x"): [1.0]}, ["a", "b", "c"], ["x"])
    assert table.best() == ({"a", "b"}, {"a", "b"})
    assert [entry.text for entry in table.layout("").rows[2]] == ["c", "-", "-"]


def test_a_row_with_a_missing_column_has_no_mean() -> None:
    table = error_table(
        {("a", "x"): [1.0], ("b", "x"): [3.0], ("b", "y"): [9.0]}, ["a", "b"], ["x", "y"]
    )
    assert table.row("a")[-1].values == ()
    assert table.best() == ({"a"}, {"b"}, {"b"})
