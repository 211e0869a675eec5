"""What every test shares: one thread, fixed seeds, the same hypothesis examples in every run."""

import os
from collections.abc import Callable

# Some virtual machines announce AMX and then kill whoever uses it, as oneDNN does for bfloat16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import pytest
import torch
from hypothesis import settings
from torch import Tensor
from torch.autograd.functional import jacobian

settings.register_profile(
    "fenchel", derandomize=True, deadline=None, max_examples=20, database=None
)
settings.load_profile("fenchel")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def dense_label() -> Callable[..., Tensor]:
    """The conjugate label by the book: build Dg(h) with autograd, then solve Dg(h)^T y = grad f(h).

    Where Dg has no full rank, by least squares together with sum(y) = 1.
    """

    def solve(f: Callable[[Tensor], Tensor], g: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
        matrix = jacobian(g, h).mT
        right_side = jacobian(f, h)
        scale = matrix.norm(dim=0)
        if torch.linalg.matrix_rank(matrix / scale, rtol=1e-9) == len(h):
            return torch.linalg.solve(matrix, right_side)
        matrix = torch.cat([matrix / scale, 1 / scale[None]])
        right_side = torch.cat([right_side, torch.ones_like(h[:1])])
        return (
            torch.linalg.lstsq(matrix, right_side[:, None], driver="gelsd").solution[:, 0] / scale
        )

    return lambda f, g, h: torch.stack([solve(f, g, row) for row in h])
