"""A tiny network in float64, its adapter, and batches; small real digits for whole runs."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from fenchel.adapters import Adapter, Inputs, Optimizer, Settings
from fenchel.methods import as_method
from fenchel.objectives.learned import LearnedObjective
from fenchel.objectives.loss_network import LossNetwork
from fenchel.train.reporting import Reporter

CLASSES = 4


@dataclass
class Scene:
    """An adapter with a learned objective, unlabelled batches and a labelled one."""

    adapter: Adapter
    batches: list[Tensor]
    task_inputs: Tensor
    task_labels: Tensor

    @property
    def network(self) -> LossNetwork:
        return self.adapter.settings.objective.network

    @property
    def inputs(self) -> list[Inputs]:
        return [Inputs((batch,), {}) for batch in self.batches]

    def task_loss(self, logits: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits, self.task_labels)


@pytest.fixture
def make_scene():
    def make(optimizer: Optimizer, *, batches: int = 1, warm_up: int = 3) -> Scene:
        """After `warm_up` updates, so that the optimiser's moments are not zero."""
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1),
            nn.BatchNorm2d(3),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(3, 5, 3),
            nn.BatchNorm2d(5),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(20, CLASSES),
        ).double()
        network = LossNetwork(classes=CLASSES, embedding=16, feed_forward=32).double()
        objective = LearnedObjective(network, temperature=1.5)
        adapter = Adapter(model, Settings(method=as_method(objective), optimizer=optimizer))
        draws = torch.randn(warm_up + batches + 1, 20, 1, 8, 8, dtype=torch.float64)
        for batch in draws[:warm_up]:
            adapter(batch)
        labels = torch.randint(0, CLASSES, (20,))
        return Scene(adapter, list(draws[warm_up:-1]), draws[-1], labels)

    return make


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """The folder of a small network trained on scikit-learn's digits."""
    pytest.importorskip("sklearn")
    from fenchel.data import load
    from fenchel.losses import CrossEntropy
    from fenchel.train import Recipe, TrainingRun, train

    folder = tmp_path_factory.mktemp("source")
    recipe = Recipe(epochs=4, batch_size=50, augmentation="none", learning_rate=0.05)
    train(
        TrainingRun(
            data=load("sklearn-digits", split="train"),
            model="digit_network",
            model_arguments={"width": 8},
            loss=CrossEntropy(),
            recipe=recipe,
            out=folder,
            threads=1,
        ),
        Reporter(),
    )
    return folder
