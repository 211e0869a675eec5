"""A mistake in an option is told by the option's name, not by that of a Python argument."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fenchel.cli import main
from fenchel.cli.adapt import adapt_images
from fenchel.cli.mistakes import in_options, options_of

NETWORK = """
from torch import nn

def build():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
"""
ADAPT = ["adapt", "--model", "network.py:build", "--images", "images.npy"]
TRAIN = ["train", "--data", "sklearn-digits", "--model", "digit_network:width=4"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([*ADAPT], "Add --trained-with, for example --trained-with cross-entropy."),
        ([*ADAPT, "--trained-with", "poly", "--temperature", "-1"], "a finite --temperature > 0"),
        ([*ADAPT, "--trained-with", "poly", "--statistics", "bach"], "error: --statistics must be"),
        ([*ADAPT, "--method", "lame", "--settings", "cifar"], "'cifar'. Did you mean 'cifar10'?"),
        ([*TRAIN, "--batch-size", "0"], "error: --batch-size of a recipe must be at least 1"),
        ([*TRAIN, "--keep", "best"], "got --keep best with --held-out 0."),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else "",
)
def test_a_mistake_in_an_option_names_the_option(
    arguments: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("network.py").write_text(NETWORK)
    np.save("images.npy", np.zeros((4, 8, 8, 3), np.uint8))
    monkeypatch.setattr(sys, "argv", ["fenchel", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("Use method='entropy'.", "Use --method entropy."),
        ("Pass trained_with=, or learning_rate.", "Pass --trained-with, or --learning-rate."),
        ("learning_rate=0.001 is low.", "--learning-rate 0.001 is low."),
        ("it writes out_file=x.csv.", "it writes --out x.csv."),
        ("the statistics of a batch of images", "the statistics of a batch of images"),
        ("method 'hard' has no such thing", "method 'hard' has no such thing"),
        ("unknown key 'learning_rate'.", "unknown key 'learning_rate'."),
        ("final_learning_rate must be low", "final_learning_rate must be low"),
        ("recipe.learning_rate=1 (now 2)", "recipe.learning_rate=1 (now 2)"),
        ("a.toml, line 3: learning_rate must", "a.toml, line 3: learning_rate must"),
    ],
)
def test_arguments_become_options_and_words_stay_words(message: str, told: str) -> None:
    assert in_options(message, options_of(adapt_images)) == told


def test_the_version_is_told_with_those_it_rests_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fenchel", "--version"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    words = capsys.readouterr().out.split()
    assert [words[0], words[2], words[4]] == ["fenchel", "(Python", "torch"]
    assert words[3] == f"{'.'.join(map(str, sys.version_info[:3]))},"
