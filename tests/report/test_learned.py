"""Meta-learned objectives in a report: rows, tables, words, figure and page say what came out."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fenchel.data.corruptions import TEST_CORRUPTIONS
from fenchel.objectives import LearnedObjective, LossNetwork, Objective, Quadratic, ScaledEntropy
from fenchel.paper import PRESETS
from fenchel.paper.learned import Learned, MetaOutcome
from fenchel.paper.learned_numbers import (
    error_table,
    errors_csv,
    fit_table,
    fits_csv,
    learned_csv,
    learned_verdict,
    paired_difference,
)
from fenchel.paper.learned_page import learned_grid_figure, write_learned_page
from fenchel.report.style import save
from fenchel.train.meta import fit
from fenchel.train.meta.score import Errors

TASKS = ("cross-entropy", "squared")
TRUTHS: dict[str, Objective] = {
    "cross-entropy": ScaledEntropy(alpha=2.0, temperature=1.5),
    "squared": Quadratic(a=-0.3),
}
LOGITS = 4 * torch.randn(300, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def errors(**levels: float) -> Errors:
    """Errors that differ from corruption to corruption, alike for all objectives."""
    return {
        name.replace("_", " "): {f"{c} 5": level + k for k, c in enumerate(TEST_CORRUPTIONS)}
        for name, level in levels.items()
    }


@pytest.fixture(scope="module")
def outcome() -> MetaOutcome:
    """Two seeds; the fits are exact, and the learned objective is better than all but the conjugate."""
    learned, baselines = [], {}
    for source, truth in TRUTHS.items():
        for task_loss in TASKS:
            for seed in (0, 1):
                torch.manual_seed(seed)
                network = LossNetwork(classes=10, embedding=16, feed_forward=32).double()
                measured = errors(learned=20 + seed, entropy_fit=21 + seed, quadratic_fit=30)
                made = fit(truth, LOGITS)
                key = (source, task_loss, seed)
                learned.append(Learned(*key, LearnedObjective(network), made, measured))
                baselines[source, seed] = errors(bn=25, entropy=24, conjugate=20 + seed)
    return MetaOutcome(tuple(learned), baselines)


def test_rows_hold_every_number_and_repeat_no_baseline(outcome: MetaOutcome) -> None:
    rows = list(csv.DictReader(io.StringIO(learned_csv(outcome))))
    assert len(rows) == 2 * 2 * 3 + 2 * 2 * 2 * 3
    by_key = {(r["source"], r["task_loss"], r["seed"], r["objective"]): r for r in rows}
    assert len(by_key) == len(rows)
    row = by_key["cross-entropy", "squared", "1", "learned"]
    assert float(row["error"]) == pytest.approx(21 + 7)
    assert float(row["fog_5"]) == 21 + TEST_CORRUPTIONS.index("fog")
    assert row["better"] == "entropy"
    assert float(row["entropy_T"]) == pytest.approx(1.5, abs=1e-6)
    assert float(row["r2_entropy"]) == pytest.approx(1)
    assert by_key["squared", "", "0", "bn"]["r2_entropy"] == ""
    assert float(by_key["squared", "squared", "0", "learned"]["quadratic_A"]) == pytest.approx(-0.3)


def test_tables_show_mean_and_spread_beside_the_paper(outcome: MetaOutcome) -> None:
    table = error_table(outcome, PRESETS["fig-meta"].lines)
    texts = [tuple(entry.text for entry in row) for row in table.rows]
    assert ("cross-entropy", "squared", "learned", "27.50 ± 0.71", "12.35", "+15.15") in texts
    assert ("squared", "squared", "bn", "32.00 ± 0.00", "-", "") in texts
    fits = [tuple(entry.text for entry in row) for row in fit_table(outcome).rows]
    assert [row[2] for row in fits] == ["2 of 2", "2 of 2", "0 of 2", "0 of 2"]


def test_summaries_hold_means_and_the_paired_difference_to_the_conjugate(
    outcome: MetaOutcome,
) -> None:
    rows = list(csv.DictReader(io.StringIO(errors_csv(outcome, PRESETS["fig-meta"].lines))))
    by_key = {(row["source"], row["task_loss"], row["objective"]): row for row in rows}
    assert len(by_key) == len(rows) == 2 * 2 * 6
    row = by_key["cross-entropy", "squared", "entropy"]
    assert (row["ours"], row["paper"]) == ("31.0", "13.14")
    assert [float(row[key]) for key in ("minus_conjugate", "low", "high")] == [3.5, 3.5, 3.5]
    assert by_key["squared", "squared", "conjugate"]["minus_conjugate"] == ""
    fits = list(csv.DictReader(io.StringIO(fits_csv(outcome))))
    assert [(row["seeds"], row["entropy_better"]) for row in fits] == [("2", "2")] * 2 + [
        ("2", "0")
    ] * 2
    assert float(fits[0]["temperature"]) == pytest.approx(1.5, abs=1e-6)
    assert float(fits[0]["r2_entropy"]) == pytest.approx(1)
    assert float(fits[0]["aic_quadratic_minus_entropy"]) > 0
    assert float(fits[0]["beyond_linear_entropy"]) == pytest.approx(1)
    assert float(fits[0]["beyond_linear_quadratic"]) < float(fits[0]["beyond_linear_entropy"])


def test_words_follow_from_the_numbers(outcome: MetaOutcome) -> None:
    lines = learned_verdict(outcome)
    assert lines[0].startswith("source cross-entropy, task cross-entropy: the entropy explains")
    assert "in 2 of 2 seeds, as the paper finds" in lines[0]
    assert (
        "    learned against entropy: better, -3.50 [-3.50, -3.50], lower in 2 of 2 seeds" in lines
    )
    assert any("learned against conjugate: not told apart" in line for line in lines)
    assert any("quadratic fit against conjugate: worse" in line for line in lines)


def test_a_difference_is_told_apart_only_if_corruptions_agree() -> None:
    random = np.random.default_rng(0)
    reference = random.uniform(10, 30, (3, 15))
    noisy = reference + random.normal(0.0, 2.0, (3, 15)) - 0.1
    assert paired_difference(noisy, reference).word == "not told apart"
    clear = paired_difference(reference - 1 + random.normal(0, 0.1, (3, 15)), reference)
    assert (clear.word, clear.seeds_lower, clear.seeds) == ("better", 3, 3)
    assert clear.estimate == pytest.approx(-1, abs=0.1)
    assert paired_difference(reference[:, :1] + 1, reference[:, :1]).word == "not told apart"


def test_the_figure_has_a_panel_for_each_source_and_task_loss(
    outcome: MetaOutcome, tmp_path: Path
) -> None:
    figure = learned_grid_figure(outcome.learned)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [f"source {source}, task {task}" for source in TRUTHS for task in TASKS]
    for axes in figure.axes:
        drawn = [line for line in axes.lines if len(line.get_xdata()) > 0]
        assert len(drawn) == 2 * 3  # per seed: learned and two fits
        labels = [text.get_text() for text in axes.get_legend().get_texts()]
        assert labels[0] == "learned, 2 seeds"
        assert "R² 1.00 ± 0.00" in "".join(labels)
    for name in ("a.svg", "b.svg"):
        save(learned_grid_figure(outcome.learned), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_figure_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one learned objective"):
        learned_grid_figure([])


def write_page(outcome: MetaOutcome, path: Path) -> Path:
    write_learned_page(
        path,
        tables=[error_table(outcome, PRESETS["fig-meta"].lines), fit_table(outcome)],
        learned=outcome.learned,
        verdict=learned_verdict(outcome),
        protocol={"scale": "a <small> one"},
    )
    return path


def test_the_page_stands_alone_and_is_the_same_every_time(
    outcome: MetaOutcome, tmp_path: Path
) -> None:
    for name in ("one.html", "two.html"):
        write_page(outcome, tmp_path / name)
    text = (tmp_path / "one.html").read_text(encoding="utf-8")
    assert text == (tmp_path / "two.html").read_text(encoding="utf-8")
    assert text.count("<svg") == 2  # for wide pages and for narrow ones
    assert "a &lt;small&gt; one" in text
    assert "learned against entropy: better" in text
    assert not re.search(r'(src|href)="http', text)


def test_nothing_of_the_page_is_cut_on_a_phone(
    open_page: Any, outcome: MetaOutcome, tmp_path: Path
) -> None:
    page = write_page(outcome, tmp_path / "learned.html")
    assert open_page(page, viewport={"width": 390, "height": 800}).faults() == []
