"""Sweeps from TOML: what they mean, and mistakes that name file, line and nearest name."""

import re

import pytest

from fenchel.bench.sweep import DataChoice, MethodChoice
from fenchel.bench.sweep_file import read_sweep

GOOD = """\
checkpoints = ["runs/poly"]
seeds = [0, 1]

[data]
name = "sklearn-digits"
root = "digits"
corruptions = ["fog", "contrast"]
severities = [3, 5]
limit = 100

[stream]
batch_size = 50
setting = "continual"

[[methods]]
name = ["source", "bn"]

[[methods]]
name = "memo"
learning_rate = [1e-3, 1e-2]
input_range = [0, 1]
tuned = "best.json"
"""


def read(tmp_path, text):
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    return read_sweep(path)


def test_a_sweep_reads_as_written(tmp_path):
    sweep = read(tmp_path, GOOD)
    assert sweep.data == [
        DataChoice(
            name="sklearn-digits",
            root=str(tmp_path / "digits"),
            corruptions=["fog", "contrast"],
            severities=[3, 5],
            limit=100,
        )
    ]
    assert sweep.checkpoints == ["runs/poly"]
    assert sweep.folder == tmp_path
    assert sweep.seeds == [0, 1]
    assert (sweep.stream.batch_size, sweep.stream.setting) == (50, "continual")
    assert [choice.name for choice in sweep.methods] == ["source", "bn", "memo"]
    assert sweep.methods[-1] == MethodChoice(
        name="memo",
        grid={"learning_rate": [1e-3, 1e-2], "input_range": [[0, 1]]},
        tuned=str(tmp_path / "best.json"),
    )


def test_methods_may_be_bare_names_and_inline_tables(tmp_path):
    text = 'checkpoints = ["x"]\ndata = {name = "mnist"}\n'
    text += 'methods = ["source", {name = "hard", threshold = [0.5, 0.75]}]'
    sweep = read(tmp_path, text)
    assert sweep.methods[1].grid == {"threshold": [0.5, 0.75]}
    assert sweep.data[0].corruption_names == ()


def test_bursts_protection_and_titles_are_read(tmp_path):
    text = GOOD.replace('"continual"', '"bursts"\nbursts = "black:length=3"')
    text += '[[methods]]\nname = "conjugate"\ntitle = "default"\nprotect = "auto"\n'
    sweep = read(tmp_path, text)
    assert sweep.stream.bursts == "black:length=3"
    choice = MethodChoice(name="conjugate", grid={"protect": ["auto"]}, title="default")
    assert sweep.methods[-1] == choice
    with pytest.raises(ValueError, match=r"line 26.*a title is of one method"):
        read(tmp_path, text.replace('"conjugate"', '["conjugate", "hard"]'))


def test_several_data_sets_and_groups_of_corruptions(tmp_path):
    text = 'checkpoints = ["x"]\nmethods = ["bn"]\n'
    text += '[[data]]\nname = "cifar10-c"\n[[data]]\nname = "cifar10"\ncorruptions = "validation"'
    first, second = read(tmp_path, text).data
    assert len(first.corruption_names) == 15
    assert second.corruption_names == ("speckle_noise", "gaussian_blur", "spatter", "saturate")


@pytest.mark.parametrize(
    ("right", "wrong", "line", "nearest"),
    [
        ("seeds =", "seds =", 2, "seeds"),
        ("[stream]", "[straem]", 11, "stream"),
        ("severities =", "severites =", 8, "severities"),
        ("batch_size =", "batchsize =", 12, "batch_size"),
        ("learning_rate =", "learning_rat =", 20, "learning_rate"),
        ("input_range =", "input_rang =", 21, "input_range"),
        ('"memo"', '"mem"', 19, "memo"),
        ('"bn"', '"bm"', 16, "bn"),
        ('"contrast"', '"contrst"', 7, "contrast"),
        ('"continual"', '"continuall"', 13, "continual"),
        ('"sklearn-digits"', '"sklearn-digit"', 5, "sklearn-digits"),
    ],
)
def test_an_unknown_name_is_told_with_file_line_and_nearest(tmp_path, right, wrong, line, nearest):
    assert right in GOOD
    with pytest.raises(ValueError) as caught:
        read(tmp_path, GOOD.replace(right, wrong))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'sweep.toml'}, line {line}: ")
    assert f"Did you mean {nearest!r}?" in message


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        ("= 50", "= -50", 12),
        ("= 100", "= 0", 9),
        ("= 100", '= 9\nconstants = "imagnet"', 10),
        ('["fog", "contrast"]', "5", 7),
        ('setting = "continual"', 'statistics = "bach"', 13),
        ('setting = "continual"', 'episodic = "yes"', 13),
        ("[3, 5]", "2.5", 8),
        ("[3, 5]", "[3, 6]", 8),
        ("[0, 1]\n\n", '["a"]\n\n', 2),
        ("[0, 1]\n\n", "[-1]\n\n", 2),
        ('["runs/poly"]', "[]", 1),
        ('["runs/poly"]', "7", 1),
        ("[1e-3, 1e-2]", "[]", 20),
        ("[1e-3, 1e-2]", "[1e-3, -1.0]", 20),
        ("[1e-3, 1e-2]", '"fast"', 20),
        ("[0, 1]\ntuned", "[1, 0]\ntuned", 21),
    ],
)
def test_a_wrong_value_is_told_with_its_line(tmp_path, right, wrong, line):
    with pytest.raises(ValueError, match=rf"sweep\.toml, line {line}: "):
        read(tmp_path, GOOD.replace(right, wrong))


def test_the_line_is_found_inside_inline_tables_that_span_lines(tmp_path):
    text = 'checkpoints = ["x"]\ndata = {name = "mnist"}\nmethods = [\n  "bn",\n'
    text += '  {name = "hard", treshold = 0.5},\n]\n'
    with pytest.raises(ValueError, match=r"line 5: unknown key of method 'hard' 'treshold'"):
        read(tmp_path, text)


@pytest.mark.parametrize("part", ["data", "checkpoints", "methods"])
def test_what_is_missing_is_named(tmp_path, part):
    text = {
        "data": 'data = {name = "mnist"}',
        "checkpoints": 'checkpoints = ["x"]',
        "methods": 'methods = ["bn"]',
    }
    del text[part]
    with pytest.raises(ValueError, match=f"needs {part!r}"):
        read(tmp_path, "\n".join(text.values()))


def test_broken_toml_names_file_and_line(tmp_path):
    with pytest.raises(ValueError, match=re.escape("sweep.toml: not valid TOML")) as caught:
        read(tmp_path, "seeds = [1\ndata = 2")
    assert "line 2" in str(caught.value)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no sweep file .*nowhere\.toml"):
        read_sweep(tmp_path / "nowhere.toml")
