"""`fenchel data`, called as a user calls it."""

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fenchel.cli import data as verb
from fenchel.cli import main
from fenchel.data import DATASETS


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FENCHEL_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "data" / "cifar10"
    folder.mkdir(parents=True)
    DATASETS["cifar10"].write_example(folder)
    return tmp_path / "home"


def call(*arguments, succeeds=True):
    result = CliRunner().invoke(verb.app, [str(argument) for argument in arguments])
    if succeeds:
        assert result.exit_code == 0, result.output
    return result


def test_list_shows_what_is_here_and_how_to_get_the_rest(cache):
    output = call("list").output
    for name in DATASETS:
        assert name in output
    assert str(cache).replace("\n", "") in output.replace("\n", "")


def test_a_table_that_goes_into_a_file_is_not_cut_to_a_width(cache):
    lines = call("list").output.splitlines()
    for name, entry in DATASETS.items():
        assert any(line.split()[0] == name and entry.what in line for line in lines if line), name


def test_list_speaks_json(cache):
    table = {row["name"]: row for row in json.loads(call("list", "--json").output)}
    assert set(table) == set(DATASETS)
    assert table["cifar10"]["present"] is True
    assert table["svhn"]["present"] is False
    assert table["svhn"]["get"] == "fenchel data fetch svhn"
    assert "corruption" in table["cifar10-c"]["options"]


def test_make_writes_the_public_layout(cache, tmp_path):
    arguments = ("--severity", 5, "-c", "fog", "-c", "contrast", "--workers", 1, "--batch-size", 4)
    call("make", "cifar10-c", *arguments, "--out", tmp_path)
    folder = tmp_path / "CIFAR-10-C"
    assert np.load(folder / "fog.npy").shape == (30, 32, 32, 3)
    assert np.load(folder / "labels.npy").shape == (30,)
    assert (folder / "contrast.npy").exists()


def test_make_puts_it_into_the_cache_where_load_finds_it(cache):
    call("make", "cifar10-c", "-c", "fog", "-w", 1)
    assert DATASETS["cifar10-c"].is_present(cache / "data" / "cifar10-c")


def test_verify_tells_good_from_bad(cache, tmp_path):
    call("make", "cifar10-c", "-c", "fog", "-w", 1, "--out", tmp_path)
    assert "made here" in call("verify", tmp_path / "CIFAR-10-C").output
    (tmp_path / "CIFAR-10-C" / "fog.npy").write_bytes(b"<html>")
    result = call("verify", tmp_path, "--json", succeeds=False)
    assert result.exit_code == 1
    findings = {row["path"].rpartition("/")[2]: row for row in json.loads(result.output)}
    assert findings["fog.npy"]["status"] == "bad"


def test_paths_with_brackets_are_shown_as_they_are(tmp_path):
    folder = tmp_path / "[red]odd"
    folder.mkdir()
    np.save(folder / "a.npy", np.zeros(3))
    assert "[red]odd" in call("verify", folder).output


def test_verify_takes_the_name_of_a_data_set(cache):
    result = call("verify", "cifar10", succeeds=False)
    assert result.exit_code == 1  # the example is not the published data
    assert "md5" in result.output
    assert "readable" in call("verify", "cifar10", "--no-checksums").output


@pytest.mark.parametrize(
    "arguments",
    [
        ("cifar10",),
        ("cifar10", "--corruption", "fog"),
        ("cifar10", "--corruption", "fog", "--severity", 5),
        ("cifar10", "--clean", "--split", "train"),
        ("cifar10-c", "--corruption", "fog", "--severity", 3),
        ("sklearn-digits", "-c", "contrast", "-n", 3),
    ],
    ids=lambda arguments: " ".join(map(str, arguments)),
)
def test_show_draws_a_picture(cache, tmp_path, arguments):
    call("show", *arguments, "--out", tmp_path / "grid.png")
    with Image.open(tmp_path / "grid.png") as picture:
        assert min(picture.size) > 100
        assert len(picture.getcolors(1 << 24)) > 30


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fetch", "cifar_10"), "Did you mean 'cifar10'"),
        (("fetch", "imagenet"), "image-net.org"),
        (("verify", "/nowhere/at/all"), "does not exist"),
        (("make", "cifar10"), "unknown data set to make"),
        (("make", "cifar10-c", "-c", "smog"), "unknown corruption"),
        (("show", "cifar10", "-c", "smog"), "unknown corruption"),
        (("show", "svhn"), "fenchel data fetch svhn"),
        (("show", "gaussians"), "images"),
        (("show", "cifar10-c", "--clean"), "corrupted images alone"),
        (("show", "cifar10", "--severity", "6"), "Invalid value"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_mistakes_are_one_line_and_exit_code_2(cache, monkeypatch, capsys, arguments, words):
    monkeypatch.setattr(sys, "argv", ["fenchel", "data", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    told = capsys.readouterr().err
    assert words in told
    assert "Traceback" not in told


def test_the_program_itself_ends_with_code_2(tmp_path):
    command = [sys.executable, "-m", "fenchel", "data", "verify", str(tmp_path / "gone")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
