"""One opener for every network that can be named, with what is known of it."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import fenchel
from fenchel.files import file_digest
from fenchel.models import Checkpoint, Metadata, build, load_checkpoint, open_model
from fenchel.models.opening import read_spec
from fenchel.models.zoo import names as zoo_names

pytestmark = pytest.mark.usefixtures("own_names")

CODE = """
from torch import nn

class Network(nn.Module):
    def __init__(self, width=4, classes=3, slope=1.0):
        super().__init__()
        self.norm, self.head, self.slope = nn.BatchNorm1d(width), nn.Linear(width, classes), slope

    def forward(self, x):
        return self.slope * self.head(self.norm(x))

def build(width=4):
    return Network(width)

ready = Network()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("net.py").write_text(CODE)
    return tmp_path


@pytest.mark.parametrize("name", ["Network", "build", "ready"])
@pytest.mark.parametrize("ending", [".pt", ".pth", ".safetensors"])
def test_a_function_a_class_or_a_network_with_weights(folder, name, ending):
    torch.manual_seed(5)
    tensors = copy.deepcopy(open_model("net.py:ready").model).state_dict()
    tensors = {key: value + 1 for key, value in tensors.items()}
    file = folder / f"weights{ending}"
    save_file(tensors, file) if ending == ".safetensors" else torch.save(tensors, file)
    opened = open_model(f"net.py:{name}", weights=file, trained_with="poly:epsilon=6")
    assert not opened.model.training
    assert all(torch.equal(tensors[key], value) for key, value in opened.model.state_dict().items())
    assert (opened.loss_spec, opened.classes, opened.caution) == ("poly:epsilon=6", (), "")
    assert opened.metadata.architecture == f"net.py:{name}"
    assert opened.files == {"net.py": file_digest("net.py"), file.name: file_digest(file)}
    plain = open_model("net.py:ready").model.state_dict()
    assert not torch.equal(plain["head.weight"], tensors["head.weight"]), "the file's own is a copy"
    adapted = fenchel.adapt(opened, method="conjugate")
    assert adapted(torch.rand(20, 4)).shape == (20, 3)


def test_the_digest_covers_weights_code_and_arguments(folder):
    first = open_model("net.py:build")
    assert open_model("net.py:build").digest == first.digest, "random weights are drawn alike"
    assert "used as its factory returned it" in first.caution
    slopes = {open_model(f"net.py:Network:slope={slope}").digest for slope in (1.0, 2.0)}
    assert len(slopes) == 2, "what is in no tensor counts as well"
    Path("net.py").write_text(CODE.replace("self.head(self.norm(x))", "self.head(-self.norm(x))"))
    changed = open_model("net.py:build")
    assert changed.digest != first.digest
    assert changed.model.state_dict().keys() == first.model.state_dict().keys()


def test_modules_are_found_in_the_current_folder_and_files_beside_the_code(folder):
    assert isinstance(open_model("net:build").model, nn.Module)
    Path("nets").mkdir()
    Path("nets", "blocks_of_mine.py").write_text("from torch.nn import Linear as Block\n")
    Path("nets", "late.py").write_text(
        "def build():\n    from blocks_of_mine import Block\n    return Block(3, 2)\n"
    )
    assert open_model("late.py:build", folder=Path("nets")).model.out_features == 2


def test_tied_weights_have_a_digest(folder):
    Path("tied.py").write_text(
        "from torch import nn\n"
        "def build():\n"
        "    first, second = nn.Linear(3, 3), nn.Linear(3, 3)\n"
        "    second.weight = first.weight\n"
        "    return nn.Sequential(first, second)\n"
    )
    assert len(open_model("tied.py:build").digest) == 64


def test_checkpoints_and_models_of_the_library_are_what_they_were(folder):
    metadata = Metadata(
        architecture="linear",
        arguments={"features": 4, "classes": 2},
        loss="cross-entropy",
        classes=("cat", "dog"),
    )
    Checkpoint(build("linear", features=4, classes=2), metadata).save("linear.safetensors")
    opened, loaded = open_model("linear.safetensors"), load_checkpoint("linear.safetensors")
    assert (opened.digest, opened.metadata, opened.files) == (loaded.digest, loaded.metadata, {})
    assert open_model("linear.safetensors", trained_with="squared").loss_spec == "squared"
    with pytest.raises(ValueError, match="has 2, got 3 names"):
        open_model("linear.safetensors", classes="abc")
    named = open_model("linear", weights="linear.safetensors")
    assert named.digest == loaded.digest, "the weights decide a network of the library"
    assert (named.loss_spec, named.classes) == ("cross-entropy", ("cat", "dog"))
    assert open_model("linear:features=4", classes=("a", "b", "c")).model.fc.out_features == 3
    assert open_model(f"zoo:{zoo_names()[0]}").loss_spec


def test_networks_of_other_packages_are_named_with_a_colon(optional_package):
    optional_package("timm")
    opened = open_model("timm:resnet18:classes=4", trained_with="cross-entropy")
    assert opened.metadata.architecture == "timm/resnet18"
    assert opened.preprocessing["input_range"] == [0.0, 1.0]
    assert opened.model(torch.rand(2, 3, 32, 32)).shape == (2, 4)
    with pytest.raises(ValueError, match=r"timm has no model 'resnet19'. Did you mean 'resnet"):
        open_model("timm:resnet19")


@pytest.mark.parametrize("package", ["timm", "torchvision"])
def test_a_package_that_is_not_there_names_its_extra(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    extra = {"timm": "timm", "torchvision": "vision"}[package]
    with pytest.raises(ImportError, match=rf"pip install 'fenchel\[{extra}\]'"):
        open_model(f"{package}:resnet18")


def test_names_are_told_apart(folder):
    Path("run").mkdir()
    assert read_spec("run").kind == "checkpoint"
    assert read_spec("resnet26:normalization=group").arguments == {"normalization": "group"}
    assert read_spec("net.py:build:width=8").arguments == {"width": 8}
    assert read_spec("package.module:build").kind == "code"
    assert read_spec("timm/resnet18") == read_spec("timm:resnet18")
