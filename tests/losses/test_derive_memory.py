"""No C x C matrix is built for many classes: the largest tensor that any operation returns says so."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fenchel import derive


class LargestTensor(TorchDispatchMode):
    """Remembers the number of elements of the largest tensor that was made."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, Tensor):
                self.elements = max(self.elements, value.numel())
        return result


FUNCTIONS = {
    "weighted": lambda h, y: (
        -(y * torch.linspace(1, 2, h.shape[-1]).to(h) * h.log_softmax(-1)).sum(-1)
    ),
    "brier": lambda h, y: (h.softmax(-1) - y).square().sum(-1),
    "smoothed": nn.CrossEntropyLoss(label_smoothing=0.1),
    "recognised": nn.CrossEntropyLoss(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_memory_grows_with_the_classes_and_not_with_their_square(name: str) -> None:
    classes, samples = 1500, 2
    loss = derive(FUNCTIONS[name])
    h = torch.randn(samples, classes, requires_grad=True)
    with LargestTensor() as made:  # the first call judges the loss at this number of classes too
        torch.autograd.grad(loss.conjugate(h).sum(), h)
    assert 0 < made.elements <= 256 * classes < classes**2


def test_few_classes_do_build_the_matrix() -> None:
    loss = derive(FUNCTIONS["brier"])
    h = torch.randn(50, 20, requires_grad=True)
    with LargestTensor() as made:
        torch.autograd.grad(loss.conjugate(h).sum(), h)
    assert made.elements >= 50 * 20 * 20
