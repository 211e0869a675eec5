"""RoTTA against a bank of lists and two networks with running statistics, all in plain torch."""

from __future__ import annotations

import copy
import math

import plain_torch
import pytest
import torch
from plain_labels import label, loss_at
from torch import nn

import fenchel
from fenchel.objectives.strong_view import strong_view

SEED = 5


class PlainBank:
    """N places; an item is [image, class, entropy, age]."""

    def __init__(self, size, classes):
        self.size, self.classes, self.places = size, classes, [None] * size

    def items(self):
        return [item for item in self.places if item is not None]

    def badness(self, entropy, age):
        return 1 / (1 + math.exp(-age / self.size)) + entropy / math.log(self.classes)

    def add(self, image, label, entropy):
        place = self.place(label, self.badness(entropy, 0))
        if place is not None:
            self.places[place] = [image, label, entropy, 0]
        for item in self.items():
            item[3] += 1

    def place(self, label, badness):
        occupied = [sum(item[1] == k for item in self.items()) for k in range(self.classes)]
        if occupied[label] < self.size / self.classes:
            if len(self.items()) < self.size:
                return self.places.index(None)
            crowded = [k for k in range(self.classes) if occupied[k] == max(occupied)]
        else:
            crowded = [label]
        worst, found = None, None
        for place, item in enumerate(self.places):
            if item is not None and item[1] in crowded:
                bad = self.badness(item[2], item[3])
                if worst is None or bad >= worst:
                    worst, found = bad, place
        return found if worst > badness else None


class RunningNorm(nn.Module):
    """Batch normalisation by running statistics; in training mode the batch enters them first."""

    def __init__(self, layer, alpha):
        super().__init__()
        self.weight, self.bias, self.eps, self.alpha = layer.weight, layer.bias, layer.eps, alpha
        self.mean, self.variance = layer.running_mean.clone(), layer.running_var.clone()

    def forward(self, x):
        mean, variance = self.mean, self.variance
        if self.training:
            mean = (1 - self.alpha) * mean + self.alpha * x.mean((0, 2, 3))
            spread = x.var((0, 2, 3), unbiased=False)
            variance = (1 - self.alpha) * variance + self.alpha * spread
            self.mean, self.variance = mean.detach(), variance.detach()
        x = (x - mean[:, None, None]) / (variance[:, None, None] + self.eps).sqrt()
        return x * self.weight[:, None, None] + self.bias[:, None, None]


def with_running_norms(model, alpha):
    twin = copy.deepcopy(model)
    for index, layer in enumerate(twin):
        if isinstance(layer, nn.BatchNorm2d):
            twin[index] = RunningNorm(layer, alpha)
    return twin


def rotta_in_plain_torch(model, batches, *, loss, bank, alpha, nu, rate):
    student, teacher = with_running_norms(model, alpha), with_running_norms(model, alpha)
    for network in (student, teacher):
        network.requires_grad_(False)
    moving = [p for index in (1, 4) for p in (student[index].weight, student[index].bias)]
    theirs = [p for index in (1, 4) for p in (teacher[index].weight, teacher[index].bias)]
    for parameter in moving:
        parameter.requires_grad_()
    optimizer = torch.optim.Adam(moving, lr=rate)
    slots, seen, outputs, steps = PlainBank(bank, plain_torch.CLASSES), 0, [], 0
    for number, batch in enumerate(batches):
        generator = torch.Generator().manual_seed(SEED * 1_000_003 + number)
        teacher.eval()
        with torch.no_grad():
            logits = teacher(batch)
        outputs.append(logits)
        for image, scores in zip(batch, logits, strict=True):
            slots.add(image, int(scores.argmax()), float(plain_torch.entropy(scores)))
            seen += 1
            if seen % bank:
                continue
            steps += 1
            student.train(), teacher.train()
            images = torch.stack([item[0] for item in slots.items()])
            ages = torch.tensor([item[3] / bank for item in slots.items()], dtype=torch.float64)
            weights = (-ages).exp() / (1 + (-ages).exp())
            with torch.no_grad():
                taught = label(loss, teacher(images))
            values = loss_at(loss, student(strong_view(images, generator)), taught)
            optimizer.zero_grad()
            (weights * values).mean().backward()
            optimizer.step()
            with torch.no_grad():
                for its, moved in zip(theirs, moving, strict=True):
                    its.copy_((1 - nu) * its + nu * moved)
    return outputs, student, teacher, slots, steps


def adapted_by_rotta(model, loss, **options):
    settings = {"optimizer": "adam", "seed": SEED, "input_range": (0, 1), **options}
    return fenchel.adapt(model, method="rotta", trained_with=loss, **settings)


@pytest.mark.parametrize(
    ("loss", "bank", "size"),
    [
        ("cross-entropy", 12, 7),
        ("cross-entropy", 5, 8),
        ("poly:epsilon=2", 12, 7),
        ("squared", 12, 7),
    ],
)
def test_it_is_lists_and_two_networks_over_a_stream(network, make_stream, loss, bank, size):
    batches = make_stream(20, size)
    options = {"bank": bank, "alpha": 0.2, "nu": 0.3}
    expected, student, teacher, slots, steps = rotta_in_plain_torch(
        network, batches, loss=loss, rate=0.02, **options
    )
    adapted = adapted_by_rotta(network, loss, learning_rate=0.02, **options)
    outputs = [adapted(batch) for batch in batches]
    plain_torch.agree(adapted, outputs, student, expected)
    memory = adapted.state.memory
    for name, value in teacher.named_parameters():
        if name in adapted.state.parameters:
            ours = memory[f"teacher.{name}"]
            torch.testing.assert_close(ours, value.detach(), rtol=1e-8, atol=1e-8)
    for who, theirs in (("student", student), ("teacher", teacher)):
        for index in (1, 4):
            if isinstance(theirs[index], RunningNorm):
                ours = memory[f"{who}.{index}.running_var"]
                torch.testing.assert_close(ours, theirs[index].variance, rtol=0, atol=1e-8)
    for place, item in enumerate(slots.places):
        assert bool(memory["filled"][place]) == (item is not None)
        if item is not None:
            assert torch.equal(memory["images"][place], item[0])
            assert (int(memory["labels"][place]), int(memory["ages"][place])) == (item[1], item[3])
    assert adapted.health().updates == steps == 20 * size // bank
    with torch.no_grad():
        assert (outputs[-1] - network(batches[-1])).abs().max() > 0.01


def test_the_bank_keeps_the_classes_balanced_on_a_stream_of_runs(make_network):
    """Long runs of one class: it gets its share of the bank and no more, and others keep theirs."""
    model = make_network("layer")
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(400, 3, 8, 8, generator=generator).double()
    with torch.no_grad():
        labels, order = model(images).argmax(-1).sort(stable=True)
    adapted = adapted_by_rotta(model, "cross-entropy", bank=10, learning_rate=0.0)
    for batch in images[order].split(20):
        adapted(batch)
    memory = adapted.state.memory
    kept = torch.bincount(memory["labels"][memory["filled"]], minlength=plain_torch.CLASSES)
    came = torch.bincount(labels, minlength=plain_torch.CLASSES)
    assert came.max() > 100
    assert kept.tolist() == came.clamp_max(10 // plain_torch.CLASSES).tolist()


def test_the_batch_around_a_sample_does_not_change_its_prediction(make_network, make_stream):
    model = make_network()
    adapted = adapted_by_rotta(model, "cross-entropy", bank=8)
    for batch in make_stream(3):
        adapted(batch)
    adapted.freeze()
    batch = make_stream(1)[0]
    alone = torch.cat([adapted(sample[None]) for sample in batch])
    torch.testing.assert_close(adapted(batch), alone, rtol=0, atol=1e-12)
    with torch.no_grad():
        assert not torch.allclose(alone, model(batch)), "statistics have moved"


def test_it_takes_one_pass_between_the_steps(make_network, make_stream):
    model, calls = make_network(), []
    model[0].register_forward_hook(lambda *_: calls.append(1))
    adapted = adapted_by_rotta(model, "cross-entropy", bank=30)
    counts = []
    for batch in make_stream(6):
        calls.clear()
        adapted(batch)
        counts.append(len(calls))
    assert counts[1:] == [1, 3, 1, 1, 3]


def test_samples_one_by_one_and_constant_batches(network, make_stream):
    adapted = adapted_by_rotta(network, "poly", bank=6)
    for sample in make_stream(1, 14)[0]:
        assert adapted(sample[None]).isfinite().all()
    assert adapted.health().updates == 2
    for value in (0.0, 0.5):
        assert adapted(torch.full((9, 3, 8, 8), value).double()).isfinite().all()
    assert adapted.health().updates == 5
    before = adapted.state_dict()
    adapted.eval()
    assert all(torch.equal(value, before[name]) for name, value in adapted.state_dict().items())


def test_predicting_after_the_update_is_the_new_teachers(make_network, make_stream):
    batch = make_stream(1, 16)[0]
    before, after = (
        adapted_by_rotta(make_network(), "cross-entropy", bank=8, nu=0.5, predict=predict)
        for predict in ("before", "after")
    )
    shown, changed = before(batch), after(batch)
    assert not torch.equal(shown, changed)
    before.freeze()
    assert torch.equal(before(batch), changed)


def test_the_adapted_model_is_the_teacher(make_network, make_stream):
    model = make_network()
    adapted = adapted_by_rotta(model, "cross-entropy", bank=8, nu=0.5)
    assert torch.equal(adapted.adapted_model()[1].weight, model[1].weight)
    for batch in make_stream(3):
        adapted(batch)
    adapted.freeze()
    twin = adapted.adapted_model()
    with torch.no_grad():
        torch.testing.assert_close(twin(batch), adapted(batch), rtol=0, atol=1e-12)
    assert not torch.equal(twin[1].running_mean, model[1].running_mean)


def test_what_it_cannot_learn_from_is_refused(make_network, make_stream):
    model = make_network()
    with pytest.raises(ValueError, match="range of the input's pixels"):
        adapted_by_rotta(model, "cross-entropy", input_range=None)
    with pytest.raises(ValueError, match="labels of another kind"):
        adapted_by_rotta(model, "exponential")
    with pytest.raises(ValueError, match="two classes or more"):
        adapted_by_rotta(make_network(classes=1), "cross-entropy")(make_stream(1)[0])
    for option in ({"bank": 0}, {"alpha": 1.5}, {"nu": -0.1}):
        with pytest.raises(ValueError, match="rotta needs"):
            adapted_by_rotta(model, "cross-entropy", **option)
