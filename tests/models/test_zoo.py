"""The networks that come with the library."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import fenchel
from fenchel.bench.tuned import read_tuned
from fenchel.losses import parse
from fenchel.models import Checkpoint, Metadata, build, load_checkpoint, zoo
from fenchel.models.card import card, publish
from fenchel.models.places import resolve

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CIFAR = [name for name in zoo.names() if name.startswith("cifar10-")]


def test_the_zoo_has_networks() -> None:
    assert CIFAR


@pytest.mark.parametrize("name", zoo.names())
def test_a_network_adapts_at_once_and_knows_its_loss(name: str) -> None:
    checkpoint = load_checkpoint(f"zoo:{name}")
    side = 28 if name.startswith("svhn") else 32
    adapted = fenchel.adapt(f"zoo:{name}")
    assert adapted(torch.rand(16, 3, side, side)).shape == (16, 10)
    assert parse(checkpoint.loss_spec).spec == checkpoint.loss_spec
    assert adapted.health().updates == 1


@pytest.mark.parametrize("name", zoo.names())
def test_the_card_is_what_the_checkpoint_says(name: str) -> None:
    path = zoo.path_of(name)
    assert path.with_suffix(".md").read_text(encoding="utf-8") == card(path)


@pytest.mark.parametrize("name", CIFAR)
def test_cifar_networks_classify_well(name: str) -> None:
    least = 0.86 if "groupnorm" in name else 0.88
    assert load_checkpoint(f"zoo:{name}").metadata.metrics["test_accuracy"] >= least


@pytest.mark.parametrize(
    "file", sorted(zoo.folder().glob("*.json")), ids=lambda file: str(file.name)
)
def test_tuned_settings_belong_to_the_network_beside_them(file: Path) -> None:
    name, kind, _ = file.name.rsplit(".", 2)
    metadata = load_checkpoint(f"zoo:{name}").metadata
    tuned = read_tuned(file)
    assert "temperature" in tuned.settings_for(metadata.architecture, metadata.loss, "conjugate")
    temperatures = {choice.settings["temperature"] for choice in tuned.choices}
    fixed = {"t1": 1, "t2": 2, "streams": 0.2 if metadata.loss == "squared" else 1}
    assert kind == "tuned" or temperatures == {fixed[kind]}
    assert tuned.protocol["checkpoints"] == [load_checkpoint(f"zoo:{name}").digest]
    assert len({choice.trials for choice in tuned.choices}) == 1


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match=f"Did you mean '{CIFAR[0]}'"):
        load_checkpoint(f"zoo:{CIFAR[0]}x")


def test_the_zoo_as_a_whole_is_its_folder() -> None:
    assert resolve("zoo:") == zoo.folder()
    assert resolve("runs/a", Path("/somewhere")) == Path("/somewhere/runs/a")


def test_the_zoo_goes_into_the_wheel_where_it_is_looked_for() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included["zoo"] == "fenchel/zoo"
    assert Path(fenchel.__file__).parent / "zoo" == zoo._INSTALLED


def test_publishing_copies_the_bytes_and_writes_the_card(tmp_path: Path) -> None:
    metadata = Metadata(
        architecture="digit_network",
        arguments={"width": 2},
        loss="squared",
        classes=tuple("0123456789"),
        recipe={"epochs": 1, "seed": 5},
        metrics={"test_accuracy": 0.5},
    )
    run = tmp_path / "run"
    Checkpoint(build("digit_network", width=2), metadata).save(run / "checkpoint.safetensors")
    file = publish(run, "tiny", tmp_path / "zoo")
    assert file.read_bytes() == (run / "checkpoint.safetensors").read_bytes()
    text = file.with_suffix(".md").read_text()
    assert text.startswith("# tiny\n")
    assert "| test accuracy | 0.5000 |" in text
    assert "| seed | 5 |" in text
    with pytest.raises(FileNotFoundError):
        publish(tmp_path / "nothing", "x", tmp_path)


def test_the_address_of_a_network_is_the_same_on_every_machine(tmp_path: Path) -> None:
    for name in zoo.names():
        assert zoo.address(zoo.path_of(name)) == f"zoo:{name}"
        assert resolve(zoo.address(zoo.path_of(name))) == zoo.path_of(name)
    elsewhere = tmp_path / "mine.safetensors"
    assert zoo.address(elsewhere) == str(elsewhere)
