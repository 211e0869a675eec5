"""Scores, and the examples they are computed on."""

import dataclasses

import numpy as np
import pytest
import torch

from fenchel.data import from_arrays
from fenchel.losses import CrossEntropy
from fenchel.train.augmentation import NoAugmentation
from fenchel.train.evaluation import evaluate
from fenchel.train.examples import channel_statistics, hold, hold_out

CPU = torch.device("cpu")


class Constant(torch.nn.Module):
    """Always says class 0."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.tensor([1.0, 0.0, 0.0]))

    def forward(self, images):
        return self.bias.expand(len(images), 3)


def data(labels, metric="accuracy"):
    inputs = np.zeros((len(labels), 4, 4, 3), np.uint8)
    made = from_arrays("made", inputs, np.array(labels), classes=("a", "b", "c"))
    return dataclasses.replace(made, metric=metric)


def test_accuracy_and_loss_are_means_over_samples():
    examples = hold(data([0, 0, 0, 1]), CPU)
    scores = evaluate(Constant(), examples, CrossEntropy(), NoAugmentation())
    assert scores["accuracy"] == 0.75
    partition = np.log(np.e + 2)
    assert scores["loss"] == pytest.approx(partition - 0.75, rel=1e-6)


def test_mean_class_accuracy_weighs_classes_alike():
    examples = hold(data([0, 0, 0, 1], metric="mean-class-accuracy"), CPU)
    assert evaluate(Constant(), examples, CrossEntropy(), NoAugmentation())["accuracy"] == 0.5


def test_evaluation_puts_the_mode_back():
    model = Constant().train()
    evaluate(model, hold(data([0, 1]), CPU), CrossEntropy(), NoAugmentation())
    assert model.training


def test_channel_statistics_are_those_of_numpy():
    pixels = np.random.default_rng(0).integers(0, 256, (70, 5, 6, 3)).astype(np.uint8)
    pixels[..., 2] = 9
    examples = hold(from_arrays("made", pixels, np.zeros(70, int)), CPU)
    mean, std = channel_statistics(examples, block=16)
    assert mean == pytest.approx((pixels / 255).mean((0, 1, 2)), abs=1e-6)
    assert std[:2] == pytest.approx((pixels / 255).std((0, 1, 2))[:2], abs=1e-6)
    assert std[2] > 0  # a constant channel


def test_held_out_examples_are_disjoint_and_decided_by_the_seed():
    examples = hold(data([0, 1, 2] * 20), CPU)
    training, held_out = hold_out(examples, 0.25, seed=0)
    assert sorted([*training.rows.tolist(), *held_out.rows.tolist()]) == list(range(60))
    assert len(held_out) == 15
    assert torch.equal(hold_out(examples, 0.25, seed=0)[1].rows, held_out.rows)
    assert not torch.equal(hold_out(examples, 0.25, seed=1)[1].rows, held_out.rows)
    assert held_out.labels.tolist() == (held_out.rows % 3).tolist()


def test_a_split_that_leaves_nothing_is_refused():
    with pytest.raises(ValueError, match="leaves one empty"):
        hold_out(hold(data([0, 1]), CPU), 0.1, seed=0)
