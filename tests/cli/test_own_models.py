"""Networks of one's own, `FILE.py:NAME` with weights, in every verb that takes a model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fenchel.bench.plan import make_plan
from fenchel.bench.running import run_job
from fenchel.bench.store import Store
from fenchel.bench.sweep_file import read_sweep
from fenchel.cli import main
from fenchel.files import file_digest
from fenchel.models import load_checkpoint, open_model
from fenchel.plugins import OwnCodeError

pytestmark = pytest.mark.usefixtures("own_names")
pytest.importorskip("sklearn")

NETWORK = """
from torch import nn

class Network(nn.Module):
    def __init__(self, width=4, classes=10, channels=1, side=2):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.AdaptiveAvgPool2d(side), nn.Flatten(),
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, images):
        return self.head(self.body(images))

class Named(Network):
    def forward(self, images):
        return {"features": images.mean(), "scores": super().forward(images)[:, :, None, None]}

def build(width=4):
    return Network(width)

def nothing():
    return {}

def wide():
    return Network(channels=3)

def wrong_size():
    return Network(side=3)

def many_classes():
    return Network(classes=12)

def failing():
    return Network(undefined)

number = 3
"""
LOSS = """
def polynomial(h, y):
    log_likelihood = (y * h.log_softmax(-1)).sum(-1)
    return -log_likelihood + (1 - (y * h.softmax(-1)).sum(-1))
"""
SWEEP = """
[data]
name = "sklearn-digits"
corruptions = ["fog"]
limit = 40

[stream]
batch_size = 20

[[methods]]
name = ["bn", "conjugate"]
"""
MODELS = """
[[models]]
name = "network.py:build"
weights = "network.pt"
trained_with = "poly:epsilon=6"
"""
OWN = ("--model", "network.py:build", "--weights", "network.pt", "--trained-with", "poly:epsilon=6")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a network of one's own, its weights, and a sweep without models."""
    monkeypatch.chdir(tmp_path)
    Path("network.py").write_text(NETWORK)
    Path("losses.py").write_text(LOSS)
    Path("sweep.toml").write_text(SWEEP)
    torch.manual_seed(1)
    network = open_model("network.py:build").model
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)
    torch.save({"state_dict": network.state_dict()}, "network.pt")
    return tmp_path


class Verbs:
    """`fenchel` through its real entry point."""

    def __init__(self, monkeypatch: Any, capsys: Any) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: object, code: int = 0) -> str:
        """What it prints on standard output, or for exit code 2 the mistake that it tells."""
        self._monkeypatch.setattr(sys, "argv", ["fenchel", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        told = self._capsys.readouterr()
        assert (stopped.value.code or 0) == code, told.err
        assert "Traceback" not in told.err
        if code != 2:
            return str(told.out)
        *_, mistake = told.err.splitlines()
        assert mistake.startswith("error: "), told.err
        return str(mistake)


@pytest.fixture
def fenchel(folder: Path, monkeypatch: Any, capsys: Any) -> Verbs:
    return Verbs(monkeypatch, capsys)


def records(store: str = "sweep.sqlite") -> list[Any]:
    with Store.open_readonly(store) as opened:
        return list(opened.records())


# --- bench and sweeps -----------------------------------------------------------------------------


def test_bench_takes_a_network_of_ones_own_and_records_the_digests_of_its_files(fenchel):
    fenchel("bench", "sweep.toml", *OWN)
    for record in records():
        assert record.status == "done", record.error
        assert record.cell.architecture == "network.py:build"
        assert record.cell.loss == "poly:epsilon=6"
        assert record.cell.model_files == {
            name: file_digest(name) for name in ("network.py", "network.pt")
        }
    again = json.loads(fenchel("bench", "sweep.toml", *OWN, "--json"))
    assert (again["cells"], again["ran"]) == (2, 0)
    exported = json.loads(fenchel("bench", "export", "sweep.toml", "--json"))["records"]
    assert all(set(row["model_files"]) == {"network.py", "network.pt"} for row in exported)
    Path("export.csv").write_text(fenchel("bench", "export", "sweep.toml"))
    fenchel("bench", "import", "other.sqlite", "export.csv")
    assert [r.key for r in records("other.sqlite")] == [r.key for r in records()]


def test_a_sweep_names_own_networks_and_two_workers_give_what_one_gives(fenchel, folder):
    Path("nets").mkdir()
    for name in ("network.py", "network.pt"):
        Path(name).rename(Path("nets", name))
    Path("nets", "own.toml").write_text(SWEEP + MODELS)
    fenchel("bench", "nets/own.toml")
    fenchel("bench", "nets/own.toml", "--workers", 2, "--store", "two.sqlite")
    one, two = records("nets/own.sqlite"), records("two.sqlite")
    assert [r.deterministic_json() for r in one] == [r.deterministic_json() for r in two]
    assert {record.status for record in one} == {"done"}


@pytest.mark.parametrize("changed", ["network.py", "network.pt"])
def test_a_file_that_changed_since_the_plan_is_refused(folder, changed):
    Path("own.toml").write_text(SWEEP + MODELS)
    jobs = make_plan(read_sweep("own.toml")).jobs
    assert run_job(jobs[0]).status == "done"
    if changed == "network.py":
        Path(changed).write_text(NETWORK + "\n# changed\n")
    else:
        torch.save(open_model("network.py:build").model.state_dict(), changed)
    record = run_job(jobs[1])
    assert record.status == "failed"
    assert f"must not change during a sweep; {changed} of network.py:build did" in record.error
    again = make_plan(read_sweep("own.toml")).jobs
    assert {job.cell.key for job in again}.isdisjoint(job.cell.key for job in jobs)


def test_a_loss_of_ones_own_is_derived_from_its_function(fenchel):
    own = [*OWN[:4], "--trained-with", "losses.py:polynomial"]
    fenchel("bench", "sweep.toml", *own)
    fenchel(
        "bench",
        "sweep.toml",
        *OWN[:4],
        "--trained-with",
        "poly:epsilon=1",
        "--store",
        "library.sqlite",
    )
    ours, theirs = records(), records("library.sqlite")
    assert {r.cell.loss for r in ours} == {"losses.py:polynomial"}
    assert ours[0].cell.model_files["losses.py"] == file_digest("losses.py")
    assert [r.wrong for r in ours] == [r.wrong for r in theirs]


def test_files_that_share_a_name_are_recorded_both(folder):
    Path("other").mkdir()
    Path("other", "network.py").write_text(LOSS)
    own = MODELS.replace("poly:epsilon=6", "other/network.py:polynomial")
    Path("own.toml").write_text(SWEEP + own)
    files = make_plan(read_sweep("own.toml")).jobs[0].cell.model_files
    assert files[f"{folder.name}/network.py"] == file_digest("network.py")
    assert files["other/network.py"] == file_digest("other/network.py")


def test_a_model_of_a_sweep_that_is_no_text_is_refused_with_its_line(fenchel):
    Path("own.toml").write_text(SWEEP + MODELS.replace('"network.pt"', "3"))
    assert "own.toml, line 15: weights of a model is a text; got 3." in fenchel(
        "bench", "own.toml", code=2
    )


def test_logits_dim_and_parameters_are_said_on_the_command_line_or_in_the_sweep(fenchel):
    named = ["--model", "network.py:Named", *OWN[2:]]
    told = fenchel("bench", "sweep.toml", *named, code=2)
    assert "Pass --logits, for example" in told
    assert "Pass --dim 1" in fenchel("bench", "sweep.toml", *named, "--logits", "scores", code=2)
    fenchel("bench", "sweep.toml", *named, "--logits", "scores", "--dim", 1)
    fenchel("bench", "sweep.toml", *OWN, "--store", "plain.sqlite")
    assert [r.wrong for r in records()] == [r.wrong for r in records("plain.sqlite")]
    assert {(r.cell.logits, r.cell.dim) for r in records()} == {("scores", 1)}
    Path("own.toml").write_text(
        SWEEP + MODELS.replace(":build", ":Named") + 'logits = "scores"\ndim = 1\n'
    )
    assert {job.cell.key for job in make_plan(read_sweep("own.toml")).jobs} == {
        record.key for record in records()
    }
    fenchel(
        "bench", "sweep.toml", *OWN, "--parameters", "head.*, body.0.bias", "--store", "h.sqlite"
    )
    moved = {r.cell.method: r.cell.parameters for r in records("h.sqlite")}
    assert moved == {"bn": "normalization", "conjugate": ("head.*", "body.0.bias")}


def test_weights_without_a_model_are_refused(fenchel):
    Path("own.toml").write_text(SWEEP + MODELS)
    told = fenchel("bench", "own.toml", "--weights", "network.pt", code=2)
    assert "--weights and --trained-with belong to a model. Pass --model as well." in told
    assert "'checkpoints' or 'models'" in fenchel("bench", "sweep.toml", code=2)


def test_tune_takes_a_network_of_ones_own_and_bench_reads_its_choice(fenchel):
    grid = ("--learning-rate", 0.01, "--temperature", 1, "--optimizer", "adam")
    fenchel("tune", "sweep.toml", *OWN, *grid, "--parameters", "all")
    (choice,) = json.loads(Path("sweep-tuned.json").read_text())["choices"]
    assert (choice["architecture"], choice["loss"]) == ("network.py:build", "poly:epsilon=6")
    assert {r.cell.parameters for r in records("sweep-tuned.sqlite")} == {"all"}
    Path("sweep.toml").write_text(SWEEP + 'tuned = "sweep-tuned.json"\n')
    fenchel("bench", "sweep.toml", *OWN)
    (tuned,) = (r.cell for r in records() if r.cell.method == "conjugate")
    assert (tuned.learning_rate, tuned.optimizer) == (0.01, "adam")


# --- train and meta -------------------------------------------------------------------------------

TRAIN = ("train", "--data", "sklearn-digits", "--epochs", 1, "--limit", 128, "--out", "run")


def test_train_keeps_a_checkpoint_that_says_what_opens_it_again(fenchel, capsys):
    fenchel(*TRAIN, "--model", "network.py:Network:width=6", "--loss", "poly:epsilon=6")
    with pytest.raises(ValueError, match=r"runs no code.*network.py:Network.*code of your own"):
        load_checkpoint("run")
    told = fenchel("bench", "sweep.toml", "--model", "run", code=2)
    assert f"--model network.py:Network and --weights {Path('run').resolve()}" in told
    opened = open_model("network.py:Network", weights="run")
    assert opened.loss_spec == "poly:epsilon=6"
    assert opened.classes == tuple("0123456789")
    assert opened.metadata.arguments == {"width": 6, "classes": 10, "channels": 1}
    assert opened.metadata.code == {"network.py": file_digest("network.py")}
    assert opened.caution == ""
    fenchel("bench", "sweep.toml", "--model", "network.py:Network", "--weights", "run")
    assert {record.status for record in records()} == {"done"}
    Path("network.py").write_text(NETWORK + "# changed\n")
    assert "network.py has changed since" in open_model("network.py:Network", weights="run").caution
    told = fenchel(
        *TRAIN, "--model", "network.py:Network:width=6", "--loss", "poly:epsilon=6", code=2
    )
    assert "a folder holds one run" in told


def test_meta_learns_for_a_network_of_ones_own_and_fit_opens_it_again(fenchel):
    few = ("--epochs", 1, "--batches", 2, "--every", 1, "--batch-size", 20, "--limit", 40)
    shifts = ("--data", "sklearn-digits", "--corruption", "contrast", "--score-corruption", "fog")
    fenchel("meta", "train", *OWN, *shifts, *few, "--out", "meta")
    facts = json.loads(fenchel("meta", "fit", "meta", "--json"))
    assert facts["better"] in ("entropy", "quadratic")
    Path("network.py").write_text(NETWORK + "# changed\n")
    told = fenchel("meta", "fit", "meta", code=2)
    assert "was learned for the model" in told
    told = fenchel("meta", "train", "--data", "sklearn-digits", code=2)
    assert "Pass --checkpoint, or --model with --weights." in told
    told = fenchel("meta", "train", *OWN[:4], *shifts, code=2)
    assert "Pass --trained-with, for example --trained-with cross-entropy." in told


# --- mistakes -------------------------------------------------------------------------------------

BENCH = ("bench", "sweep.toml", "--trained-with", "poly", "--model")


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("network.py:Netwerk", "Did you mean 'Network'?"),
        ("netwerk.py:Network", "must be a Python file; there is none"),
        ("network.py", "is written FILE.py:NAME"),
        (
            "network.py:number",
            "must be a function or class that makes a network, or a network; it is int",
        ),
        ("network.py:nothing", "must return a network, an nn.Module; it returned dict"),
        ("network.py:build:depth=3", "unexpected keyword argument 'depth'"),
        (
            "network.py:failing",
            "network.py, line 36: your code failed with NameError: name 'undefined'",
        ),
        ("no_such_package.nets:build", "no module 'no_such_package.nets'"),
        (
            "network.pt",
            "holds weights, and does not say of which network. Pass the file as --weights",
        ),
        ("resnet27", "Did you mean 'resnet26'?"),
        ("nowhere/checkpoint.safetensors", "holds none"),
        ("zoo:nothing", "unknown network of the zoo 'nothing'"),
        ("network.py:many_classes", "model and data must agree in the number of classes"),
        ("network.py:wide", "It said (network.py, line 14): RuntimeError: Given groups=1"),
        ("network.py:wide", "The model takes colour images: choose data of three channels"),
        ("network.py:wrong_size", "Its first layer, a Conv2d, takes 1 channels"),
    ],
)
def test_a_mistake_in_the_model_is_one_line_before_anything_runs(fenchel, model, told):
    assert told in fenchel(*BENCH, model, code=2)
    assert not Path("sweep.sqlite").exists()


def test_train_and_meta_tell_a_failing_network_in_one_line(fenchel):
    told = fenchel(*TRAIN, "--model", "network.py:wide", code=2)
    assert "float32 of shape (2, 1, 8, 8) with values from 0 to" in told
    told = fenchel(*TRAIN, "--model", "network.py:Named", code=2)
    assert "must return logits of shape (2, 10)" in told
    own = ("--model", "network.py:wide", "--trained-with", "poly", "--data", "sklearn-digits")
    assert "The model takes colour images" in fenchel("meta", "train", *own, code=2)


def test_a_network_that_fails_later_fails_its_cells_in_one_line(fenchel):
    """Two images are fine, twenty are not: the record says what was fed."""
    body = "        return self.head(self.body(images))\n"
    moody = "        if len(images) > 2: raise RuntimeError('too many\\nof them')\n"
    Path("network.py").write_text(NETWORK.replace(body, moody + body))
    fenchel("bench", "sweep.toml", *OWN, code=1)
    (error,) = {record.error for record in records()}
    assert error.startswith("ModelFailure: the model failed on float32 of shape (20, 1, 8, 8)")
    assert "It said (network.py, line 14): RuntimeError: too many." in error
    assert "\n" not in error


def test_the_traceback_is_shown_on_request_alone(folder, monkeypatch):
    monkeypatch.setenv("FENCHEL_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["fenchel", *BENCH, "network.py:failing"])
    with pytest.raises(OwnCodeError) as shown:
        main()
    assert isinstance(shown.value.__cause__, NameError)


def test_a_file_with_a_mistake_in_it_is_named_with_the_line(fenchel):
    Path("network.py").write_text("import torch\n\ndef build(:\n    pass\n")
    assert "network.py, line 3: your code failed with SyntaxError" in fenchel(
        *BENCH, "network.py:build", code=2
    )
    Path("network.py").write_text("import torch\nimport blocks\n")
    Path("blocks.py").write_text("value = 1\nvalue / 0\n")
    told = fenchel(*BENCH, "network.py:build", code=2)
    assert "blocks.py, line 2: your code failed with ZeroDivisionError" in told
