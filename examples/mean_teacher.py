"""A method of your own in one file: a mean teacher, with a memory that is saved, reset and undone.

    fenchel adapt --plugin examples/mean_teacher.py --method mean-teacher:momentum=0.99 ...
    plugins = ["mean_teacher.py"]       # in a sweep file

In Python, import the file or call `fenchel.load_plugin("mean_teacher.py")`.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fenchel
from fenchel.adapters import Inputs, Passes, State


@fenchel.register("mean-teacher")
@dataclass(frozen=True, kw_only=True)
class MeanTeacher(fenchel.Method):
    """The student learns the teacher's classes; the teacher, a moving average of the student, predicts."""

    momentum: float = 0.99

    def start(self, passes: Passes, batch: Inputs) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in passes.source.items()}

    def update(self, passes: Passes, state: State, batch: Inputs) -> State:
        taught = passes.logits(state.memory, batch).argmax(-1)

        def loss(theta: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            values = F.cross_entropy(passes.logits(theta, batch), taught, reduction="none")
            return passes.mean(values)

        state = passes.descend(state, loss)
        teacher = {
            name: torch.lerp(value, state.memory[name], self.momentum)
            for name, value in state.parameters.items()
        }
        return replace(state, memory=teacher)

    def output(self, passes: Passes, state: State, batch: Inputs) -> Any:
        return passes.output(state.memory, batch)


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    adapted = fenchel.adapt(model, method="mean-teacher:momentum=0.9", learning_rate=0.1)
    for batch, _ in fenchel.online(adapted, torch.randn(10, 64, 4)):
        assert len(batch) == 64
    print(adapted.health())
    source = model.state_dict()["1.weight"]
    for who, theta in (("student", adapted.state.parameters), ("teacher", adapted.state.memory)):
        print(f"the {who} has moved by {float((theta['1.weight'] - source).norm()):.4f}")


if __name__ == "__main__":
    main()
