"""An oracle for losses given as functions: dense systems from autograd, objectives by definition."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

LossFunction = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Oracle:
    """A loss fn(h, y) = f(h) - <y, g(h)> + target_term(y), sample by sample and without cleverness."""

    function: LossFunction
    target_term: Callable[[Tensor], Tensor] | None = None
    on_simplex: bool = False

    def value(self, h: Tensor, y: Tensor) -> Tensor:
        value = self.function(h[None], y[None]).sum()
        return value if self.target_term is None else value - self.target_term(y)

    def slope(self, h: Tensor, y: Tensor) -> Tensor:
        point = h.clone().requires_grad_()
        return torch.autograd.grad(self.value(point, y), point)[0]

    def label(self, h: Tensor) -> Tensor:
        """Solve b - A y = 0, with sum(y) = 1 where A has no full rank."""
        columns = torch.stack([self.slope(h, corner) for corner in torch.eye(len(h)).to(h)], -1)
        zero = torch.zeros_like(h)
        b = zero if self.on_simplex else self.slope(h, zero)
        matrix = columns if self.on_simplex else b[:, None] - columns
        scale = matrix.norm(dim=0)
        scale = torch.where(scale > 0, scale, 1.0)  # the loss of a class may be flat here
        full_rank = torch.linalg.matrix_rank(matrix / scale, rtol=1e-9) == len(h)
        if full_rank and not self.on_simplex:
            return torch.linalg.solve(matrix, b)
        matrix = torch.cat([matrix / scale, scale.amin() / scale[None]])
        b = torch.cat([b, scale.amin()[None]])
        return torch.linalg.lstsq(matrix, b[:, None], driver="gelsd").solution[:, 0] / scale

    def objective(self, h: Tensor) -> Tensor:
        return self.value(h, self.label(h))

    def directional_derivative(self, h: Tensor, direction: Tensor, step: float = 1e-5) -> Tensor:
        ahead, behind = self.objective(h + step * direction), self.objective(h - step * direction)
        return (ahead - behind) / (2 * step)


@pytest.fixture(scope="session")
def oracle() -> type[Oracle]:
    return Oracle
