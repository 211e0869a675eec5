"""Things of the user's own: one decorator for all of them, and plain files that bring them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import fenchel
from fenchel.adapters import METHODS
from fenchel.bench.canonical import canonical_settings
from fenchel.bench.exports import as_csv, columns, import_file
from fenchel.bench.plan import make_plan
from fenchel.bench.store import Store
from fenchel.bench.sweep_file import read_sweep
from fenchel.cli import app
from fenchel.data import DATASETS, from_arrays, load
from fenchel.data.corruptions import CORRUPTIONS, corrupt
from fenchel.losses import LOSSES, parse
from fenchel.models import MODELS, Checkpoint, Metadata, build
from fenchel.names import HOMES
from fenchel.plugins import load_plugin, loaded_plugins

pytestmark = pytest.mark.usefixtures("own_names")
EXAMPLE = Path(__file__).parents[1] / "examples" / "mean_teacher.py"


# --- one decorator --------------------------------------------------------------------------------


def test_one_decorator_takes_every_kind_of_thing():
    @fenchel.register("test-double")
    @dataclass(frozen=True, kw_only=True)
    class Double(fenchel.Loss):
        def f(self, h):
            return 2 * h.logsumexp(-1)

        def g(self, h):
            return 2 * h

    @fenchel.register("test-spread")
    @dataclass(frozen=True)
    class Spread(fenchel.Objective):
        """How far the scores are apart."""

        scale: float = 1.0

        def value(self, h):
            return -self.scale * h.var(-1)

    @fenchel.register("test-idle")
    @dataclass(frozen=True, kw_only=True)
    class Idle(fenchel.Method):
        """Does nothing."""

    @fenchel.register("test_darker", kind="corruption", cifar=(1, 2, 3, 4, 5))
    def darker(images, factor, draws):
        return images / 255 / factor

    @fenchel.register("test-dots", kind="data set", splits=("test", "train"))
    def dots(split, root):
        """Four grey images."""
        return from_arrays("dots", np.zeros((4, 8, 8, 1), np.uint8), np.arange(4), classes="abcd")

    @fenchel.register("test_tiny")
    class Tiny(nn.Linear):
        def __init__(self, *, classes=2):
            super().__init__(3, classes)

    @fenchel.register(kind="model")
    def test_tiny_factory(*, classes=2):
        return nn.Linear(3, classes)

    assert parse("test-double") == Double()
    assert Double.name == "test-double"
    h = torch.randn(4, 3)
    torch.testing.assert_close(Double().conjugate(h), 2 * fenchel.CrossEntropy().conjugate(h))
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    adapted = fenchel.adapt(model, method="test-spread:scale=2.0")
    assert adapted.settings.objective == Spread(scale=2.0)
    assert adapted(torch.randn(20, 3)).shape == (20, 3)
    assert METHODS["test-idle"] is Idle
    images = np.full((1, 8, 8, 3), 100, np.uint8)
    assert corrupt(images, "test_darker", 2).max() == 50
    assert len(load("test-dots")) == 4
    assert DATASETS["test-dots"].what == "Four grey images."
    assert isinstance(build("test_tiny", classes=5), Tiny)
    assert build("test_tiny_factory", classes=5).out_features == 5
    assert {"test_tiny", "test_tiny_factory"} <= set(MODELS)
    assert "test_darker" in CORRUPTIONS
    assert "test-double" in LOSSES


def test_what_cannot_be_told_is_refused_with_what_to_do():
    with pytest.raises(TypeError, match=r"cannot tell which.*pass kind="):
        fenchel.register("test-what")(lambda: None)
    with pytest.raises(ValueError, match="unknown kind of thing to register 'models'"):
        fenchel.register("test-what", kind="models")(lambda: None)
    assert set(HOMES) == {"loss", "objective", "method", "corruption", "data set", "model"}


def test_a_definition_that_is_run_again_replaces_itself_and_no_other():
    def define(value):
        @fenchel.register("test-again")
        @dataclass(frozen=True, kw_only=True)
        class Again(fenchel.Method):
            setting: int = value

        return Again

    define(1)
    second = define(2)
    assert METHODS["test-again"] is second
    with pytest.raises(ValueError, match="named 'test-again' exists already"):

        @fenchel.register("test-again")
        @dataclass(frozen=True, kw_only=True)
        class Other(fenchel.Method):
            pass


def test_a_method_cannot_take_the_name_of_an_objective():
    with pytest.raises(ValueError, match="named 'entropy' exists already"):

        @fenchel.register("entropy")
        @dataclass(frozen=True, kw_only=True)
        class Entropy(fenchel.Method):
            pass


def test_a_default_that_is_an_object_stays_out_of_records():
    @fenchel.register("test-with-object")
    @dataclass(frozen=True, kw_only=True)
    class WithObject(fenchel.Method):
        inner: fenchel.Objective = field(default_factory=fenchel.Entropy)
        pull: float = 0.5

    fields = canonical_settings("test-with-object", {"pull": 0.1}, fenchel.CrossEntropy(), {})
    assert fields["options"] == {"pull": 0.1}
    assert WithObject().inner == fenchel.Entropy()


# --- plugin files ---------------------------------------------------------------------------------

PLUGIN = '''
from dataclasses import dataclass, replace
import torch
import fenchel

@fenchel.register("counting")
@dataclass(frozen=True, kw_only=True)
class Counting(fenchel.Method):
    """Remembers how many samples it has met, and moves nothing."""

    moves = False
    stride: int = 1

    def start(self, passes, batch):
        return {"count": torch.zeros(())}

    def update(self, passes, state, batch):
        return replace(state, memory={"count": state.memory["count"] + len(batch) * self.stride})
'''


@pytest.fixture
def plugin(tmp_path):
    """A file with a method of its own name in every test: names are taken once in a process."""
    name = f"counting-{tmp_path.name}".replace("_", "-")
    path = tmp_path / "my_method.py"
    path.write_text(PLUGIN.replace('"counting"', f'"{name}"'))
    return path, name


def test_a_file_is_run_once_and_known_by_its_content(plugin):
    path, name = plugin
    first = load_plugin(path)
    kind = METHODS[name]
    assert load_plugin(str(path)) == first
    assert METHODS[name] is kind
    assert METHODS.plugin_of(name).digest == first.digest
    assert METHODS.plugin_of("conjugate") is None
    assert first in loaded_plugins()
    path.write_text(path.read_text().replace("moves nothing", "moves nothing at all"))
    assert load_plugin(path).digest != first.digest
    assert METHODS[name] is not kind, "the changed file takes the place of the old one"


def test_a_file_that_fails_leaves_nothing_behind_and_says_which(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("import fenchel\nimport no_such_module_anywhere\n")
    before = loaded_plugins()
    with pytest.raises(ImportError, match=r"broken.py cannot be loaded.*no_such_module"):
        load_plugin(path)
    assert loaded_plugins() == before
    with pytest.raises(FileNotFoundError, match="a plugin is a Python file"):
        load_plugin(tmp_path / "none.py")


def test_the_example_is_a_stateful_method_in_one_file():
    load_plugin(EXAMPLE)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    adapted = fenchel.adapt(model, method="mean-teacher", momentum=0.5, learning_rate=0.1)
    batches = torch.randn(3, 32, 4)
    for batch in batches:
        adapted(batch)
    teacher, student = adapted.state.memory["1.weight"], adapted.state.parameters["1.weight"]
    assert not torch.equal(teacher, student)
    assert not torch.equal(teacher, model[1].weight)


def verbs():
    """Every verb of the command line, as the words that call it."""

    def below(application, words):
        for command in application.registered_commands:
            name = command.name or command.callback.__name__.rstrip("_")
            yield (*words, name.replace("_", "-"))
        for group in application.registered_groups:
            yield from below(group.typer_instance, (*words, group.name))

    return sorted(below(app, ()))


@pytest.mark.parametrize("verb", verbs(), ids=" ".join)
def test_every_verb_takes_a_plugin(verb):
    result = CliRunner().invoke(app, [*verb, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "--plugin" in result.output
    missing = CliRunner().invoke(app, [*verb, "--plugin", "no_such_file.py"])
    assert isinstance(missing.exception, FileNotFoundError)


def test_list_and_adapt_know_what_a_plugin_brings(plugin, tmp_path, monkeypatch):
    path, name = plugin
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "def build():\n"
        "    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(),\n"
        "                         nn.Linear(144, 3))\n"
    )
    np.save(tmp_path / "images.npy", np.random.default_rng(0).integers(0, 255, (40, 8, 8, 1), "u1"))
    listed = run_fenchel("list", "methods", "--json", "--plugin", str(path))
    about = {row["name"]: row["about"] for row in json.loads(listed)["methods"]}
    assert "stride=1" in about[name]
    run_fenchel(
        *("adapt", "--plugin", str(path), "--model", "net.py:build", "--images", "images.npy"),
        *("--method", f"{name}:stride=2", "--out", "out.csv", "--batch-size", "20"),
    )
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 41


def run_fenchel(*arguments):
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def sweep(plugin, tmp_path):
    path, name = plugin
    torch.manual_seed(0)
    model = build("digit_network", width=4)
    classes = tuple(str(k) for k in range(10))
    metadata = Metadata(
        architecture="digit_network",
        arguments={"width": 4},
        loss="cross-entropy",
        classes=classes,
    )
    Checkpoint(model.eval(), metadata).save(tmp_path / "net.safetensors")
    file = tmp_path / "sweep.toml"
    file.write_text(
        f'''
checkpoints = ["net.safetensors"]
plugins = ["{path.name}"]
[data]
name = "sklearn-digits"
corruptions = ["fog"]
limit = 40
[stream]
batch_size = 20
[[methods]]
name = ["bn", "{name}"]
'''
    )
    return file


def test_a_sweep_names_its_plugins_and_their_digests_are_recorded(plugin, sweep):
    path, name = plugin
    plan = make_plan(read_sweep(sweep))
    cells = {job.cell.method: job.cell for job in plan.jobs}
    assert cells[name].plugins == {"my_method.py": load_plugin(path).digest}
    assert cells[name].options == {"stride": 1}
    assert cells["bn"].plugins == {}, "what a plugin has no part in keeps its key"
    path.write_text(path.read_text() + "\n# changed\n")
    changed = {job.cell.method: job.cell for job in make_plan(read_sweep(sweep)).jobs}
    assert changed[name].key != cells[name].key
    assert changed["bn"].key == cells["bn"].key


@pytest.mark.parametrize("executor", ["serial", "processes"])
def test_cells_of_a_plugin_run_in_every_executor(plugin, sweep, executor):
    _, name = plugin
    workers = "1" if executor == "serial" else "2"
    run_fenchel("bench", str(sweep), "--executor", executor, "--workers", workers)
    with Store.open_readonly(sweep.with_suffix(".sqlite")) as store:
        records = {record.cell.method: record for record in store.records()}
        text = as_csv(store)
    assert {record.status for record in records.values()} == {"done"}
    assert records[name].wrong == records["bn"].wrong
    assert "plugins" in text.partition("\n")[0].split(",")
    (sweep.parent / "export.csv").write_text(text)
    with Store(sweep.parent / "again.sqlite") as again:
        assert import_file(again, sweep.parent / "export.csv") == (2, 0)
        assert as_csv(again) == text


def test_exports_without_plugins_have_no_such_column():
    assert "plugins" not in columns()
    assert "plugins" in columns(also=["plugins"])


def test_a_sweep_with_a_plugin_that_is_not_there_names_its_line(sweep, plugin):
    plugin[0].unlink()
    with pytest.raises(ValueError, match=r"sweep.toml, line 3: a plugin is a Python file"):
        read_sweep(sweep)
