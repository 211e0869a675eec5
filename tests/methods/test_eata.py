"""EATA against a plain loop, and Fisher information without labels."""

from __future__ import annotations

import copy

import plain_torch as plain
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fenchel
from fenchel.methods import Fisher, fisher
from fenchel.methods.eata import Eata


def plain_fisher(model: nn.Module, images: Tensor, size: int = 64) -> list[Tensor]:
    """The mean over batches of the squared gradient of the cross-entropy at the predicted class."""
    parameters = plain.affine(plain.in_place(model))
    sums, count = [torch.zeros_like(p) for p in parameters], 0
    for start in range(0, len(images), size):
        model.zero_grad()
        logits = model(images[start : start + size])
        F.cross_entropy(logits, logits.argmax(1)).backward()
        sums = [total + p.grad.square() for total, p in zip(sums, parameters, strict=True)]
        count += 1
    return [total / count for total in sums]


def source_images(count: int = 150) -> Tensor:
    return torch.cat(plain.stream(count // 15, size=15, seed=5))


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("loss", ["cross-entropy", "poly:epsilon=2"])
def test_it_is_the_plain_loop(norm, loss):
    batches, model, images = plain.stream(), plain.network(norm), source_images()
    importance = plain_fisher(copy.deepcopy(model), images)
    source = [p.detach().clone() for p in plain.affine(copy.deepcopy(model))]

    def penalty():
        parameters = (p for p in model.parameters() if p.requires_grad)
        drifts = zip(importance, parameters, source, strict=True)
        return 50 * sum((f * (p - s).square()).sum() for f, p, s in drifts)

    wanted, kept = plain.eta_loop(model, batches, plain.TERMS[loss], penalty=penalty)
    assert 0 < sum(kept) < 16 * len(batches)
    adapted = fenchel.adapt(
        plain.network(norm),
        trained_with=loss,
        method="eata",
        anchor=50.0,
        similarity=0.9,
        source_images=images,
        optimizer="adam",
        learning_rate=0.01,
        predict="before",
    )
    plain.agree(adapted, [adapted(x) for x in batches], model, wanted)


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_fisher_information_needs_no_labels_and_is_the_squared_gradient(norm):
    images = source_images()
    wanted = plain_fisher(plain.network(norm), images)
    model = plain.network(norm)
    before = copy.deepcopy(model.state_dict())
    found = fisher(model, images)
    assert found.images == 150
    for ours, theirs in zip(found.tensors.values(), wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_an_anchor_of_zero_is_eta():
    batches, images = plain.stream(4), source_images()
    settings = {"trained_with": "poly", "similarity": 0.9, "learning_rate": 0.01}
    eata = fenchel.adapt(
        plain.network("layer"), method="eata:anchor=0", source_images=images, **settings
    )
    eta = fenchel.adapt(plain.network("layer"), method="eta", **settings)
    for x in batches:
        assert torch.equal(eata(x), eta(x))


def test_a_file_of_fisher_information_gives_the_same_method(tmp_path):
    images, model = source_images(), plain.network("batch")
    file = tmp_path / "fisher.safetensors"
    found = fisher(model, images)
    found.save(file)
    assert Fisher.load(file).digest == found.digest
    settings = {"trained_with": "poly", "similarity": 0.9}
    ready = fenchel.adapt(model, method="eata", fisher=found, **settings)
    read = fenchel.adapt(model, method=f"eata:fisher={file}", **settings)
    made = fenchel.adapt(model, method="eata", source_images=images, **settings)
    for x in plain.stream(2):
        output = ready(x)
        assert torch.equal(read(x), output)
        assert torch.equal(made(x), output)
    written = read.settings.method.settings()
    assert (written["fisher"], written["fisher_digest"]) == (str(file), found.digest)
    fisher(model, images[:70]).save(file)
    with pytest.raises(ValueError, match="must be the one with digest"):
        Eata.made_for(fenchel.PolyLoss(), **written)


def test_only_the_first_images_count():
    images, model = source_images(), plain.network("batch")
    few = fenchel.adapt(
        model, trained_with="poly", method="eata:fisher_images=70", source_images=images
    )
    assert few.settings.method.fisher.digest == fisher(model, images[:70]).digest


def test_without_source_data_the_error_says_what_to_pass(tmp_path):
    model = plain.network("batch")
    with pytest.raises(ValueError, match=r"source_images=.*fisher=.*method='eta'"):
        fenchel.adapt(model, trained_with="poly", method="eata")
    with pytest.raises(TypeError, match="source_images are for methods that need source data"):
        fenchel.adapt(model, trained_with="poly", method="eta", source_images=source_images())
    with pytest.raises(FileNotFoundError, match=r"there is none at .*fenchel\.methods\.fisher"):
        fenchel.adapt(
            model, trained_with="poly", method="eata", fisher=tmp_path / "none.safetensors"
        )
    with pytest.raises(ValueError, match="a tensor of source images"):
        fisher(model, torch.zeros(0, 3, 8, 8))
    (tmp_path / "damaged.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="is not whole"):
        Fisher.load(tmp_path / "damaged.safetensors")


def test_fisher_information_of_other_parameters_is_refused():
    model = plain.network("batch")
    adapted = fenchel.adapt(
        model,
        trained_with="poly",
        method="eata",
        fisher=fisher(model, source_images()),
        parameters="last:1",
    )
    with pytest.raises(ValueError, match="that of the moving parameters"):
        adapted(plain.stream(1)[0])
