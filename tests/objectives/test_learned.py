"""The learned objective: its network, its file, and its place beside the others."""

import dataclasses

import pytest
import safetensors.torch
import torch
from torch import nn

import fenchel
from fenchel.objectives.learned import LearnedObjective
from fenchel.objectives.loss_network import LossNetwork


@pytest.fixture
def objective():
    torch.manual_seed(0)
    return LearnedObjective(LossNetwork(classes=3, embedding=16, layers=2, hidden_layers=2))


@pytest.fixture
def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


@pytest.mark.parametrize("sizes", [{}, {"layers": 2, "hidden_layers": 2, "embedding": 64}], ids=str)
def test_the_encoder_equals_torchs_own(sizes):
    network = LossNetwork(classes=6, **sizes).double()
    width, wide = network.sizes["embedding"], network.sizes["feed_forward"]
    tokens = torch.randn(5, 6, width, dtype=torch.float64)
    expected = tokens
    for ours in network.encoder:
        theirs = nn.TransformerEncoderLayer(
            width, 4, wide, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        names = {
            "self_attn.in_proj_weight": ours.project.weight,
            "self_attn.in_proj_bias": ours.project.bias,
            "self_attn.out_proj.weight": ours.merge.weight,
            "self_attn.out_proj.bias": ours.merge.bias,
            "linear1.weight": ours.perceptron[0].weight,
            "linear1.bias": ours.perceptron[0].bias,
            "linear2.weight": ours.perceptron[2].weight,
            "linear2.bias": ours.perceptron[2].bias,
            "norm1.weight": ours.before_attention.weight,
            "norm1.bias": ours.before_attention.bias,
            "norm2.weight": ours.before_perceptron.weight,
            "norm2.bias": ours.before_perceptron.bias,
        }
        theirs.double().load_state_dict(names)
        expected = theirs(expected)
    torch.testing.assert_close(network.encoder(tokens), expected)


def test_every_class_has_a_place_of_its_own(objective):
    h = torch.tensor([[2.0, 0.0, -1.0], [0.0, 2.0, -1.0]])
    first, second = objective(h).tolist()
    assert first != pytest.approx(second)


def test_second_derivatives_exist(objective):
    objective.network.double()
    h = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(objective, h)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"classes": 1}, "at least 2 classes; got 1"),
        ({"embedding": 20}, "embedding of a loss network is one of 16, 32, 64; got 20"),
        ({"feed_forward": 16}, "one of 32, 64, 128; got 16"),
        ({"layers": 3}, "one of 1, 2; got 3"),
        ({"hidden_layers": 0}, "one of 1, 2; got 0"),
        ({"heads": 3}, "heads of a loss network is one of 1, 2, 4, 8, 16, 32; got 3"),
    ],
    ids=str,
)
def test_sizes_outside_the_papers_choices_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        LossNetwork(**{"classes": 3, **sizes})


def test_another_number_of_classes_is_refused(objective):
    with pytest.raises(ValueError, match=r"learned for 3 classes.*got scores of shape \(7, 5\)"):
        objective(torch.zeros(7, 5))


def test_equality_is_by_weights_and_temperature(objective, tmp_path):
    objective.save(tmp_path / "a.safetensors")
    twin = LearnedObjective.load(tmp_path / "a.safetensors")
    assert twin == objective
    assert hash(twin) == hash(objective)
    assert repr(twin) == repr(objective)
    assert twin != dataclasses.replace(objective, temperature=2.0)
    with torch.no_grad():
        objective.network.head[-1].bias += 1
    assert twin != objective


def test_a_saved_objective_comes_back_to_the_bit(objective, tmp_path):
    kept = dataclasses.replace(objective, temperature=2.5, protocol={"learn": {"digest": "ab"}})
    kept.save(tmp_path / "deep" / "a.safetensors")
    kept.save(tmp_path / "b.safetensors")
    found = LearnedObjective.load(tmp_path / "deep" / "a.safetensors")
    h = torch.randn(10, 3)
    assert torch.equal(found(h), kept(h))
    assert found.temperature == 2.5
    assert found.protocol == {"learn": {"digest": "ab"}}
    assert not any(weight.requires_grad for weight in found.network.parameters())
    first, second = (
        (tmp_path / name).read_bytes() for name in ("deep/a.safetensors", "b.safetensors")
    )
    assert first == second
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.safetensors"]


def test_files_that_hold_no_objective_are_refused(objective, tmp_path, model):
    with pytest.raises(FileNotFoundError, match="there is none at"):
        LearnedObjective.load(tmp_path / "none.safetensors")
    (tmp_path / "noise.safetensors").write_bytes(b"not tensors at all")
    with pytest.raises(ValueError, match="is not whole"):
        LearnedObjective.load(tmp_path / "noise.safetensors")
    safetensors.torch.save_file(model.state_dict(), tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"says format='fenchel-learned-objective-1'.*says None"):
        LearnedObjective.load(tmp_path / "model.safetensors")
    objective.network.sizes["layers"] = 1  # sizes and weights that do not fit
    objective.save(tmp_path / "odd.safetensors")
    with pytest.raises(ValueError, match="is damaged"):
        LearnedObjective.load(tmp_path / "odd.safetensors")


def test_the_adapter_takes_it_by_object_and_by_path(objective, model, tmp_path):
    objective.save(tmp_path / "learned.safetensors")
    x = torch.randn(32, 4)
    by_object = fenchel.adapt(model, objective=objective, learning_rate=0.1)
    by_path = fenchel.adapt(
        model, method="learned", path=tmp_path / "learned.safetensors", learning_rate=0.1
    )
    assert by_path.settings.objective == objective
    for _ in range(2):
        assert torch.equal(by_object(x), by_path(x))
    assert by_object.health().updates == 2
    source = fenchel.adapt(model, method="bn")(x)
    assert not torch.allclose(by_path(x), source)


def test_a_temperature_asked_for_replaces_the_saved_one(objective, model, tmp_path):
    dataclasses.replace(objective, temperature=3.0).save(tmp_path / "a.safetensors")
    options = {"method": "learned", "path": tmp_path / "a.safetensors"}
    assert fenchel.adapt(model, **options).settings.objective.temperature == 3.0
    cooled = fenchel.adapt(model, temperature=2.0, **options)
    assert cooled.settings.objective.temperature == 2.0


def test_it_follows_the_logits_precision(objective):
    h = torch.randn(4, 3, dtype=torch.float64)
    assert objective(h).dtype == torch.float64
    torch.testing.assert_close(objective(h).float(), objective(h.float()))
