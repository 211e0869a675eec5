"""Many small linear systems at once, each known only through its product with a vector (GMRES)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Operator = Callable[[Tensor], Tensor]
"""A batch of linear maps: (N, C) -> (N, C), row n mapped by the n-th matrix."""


def gmres(
    operator: Operator,
    right_side: Tensor,
    *,
    tolerance: float,
    restart: int = 24,
    cycles: int = 8,
) -> tuple[Tensor, Tensor, int]:
    """Solve `operator(x) = right_side` for all N rows together.

    Returns the solution (N, C), the relative residual of every row (N,) and the number of products
    spent. Memory is O(restart * N * C) at most; rows that converge early wait for the others.
    """
    solution = torch.zeros_like(right_side)
    scale = right_side.norm(dim=-1).clamp_min(torch.finfo(right_side.dtype).tiny)
    residual, products = right_side, 0
    for _ in range(cycles):
        correction, spent = _cycle(operator, residual, scale * tolerance, restart)
        solution = solution + correction
        residual = right_side - operator(solution)
        products += spent + 1
        # With >, a comparison with NaN is false: a row that is not finite does not hold up the others.
        if not bool((residual.norm(dim=-1) > 2 * scale * tolerance).any()):
            break
    return solution, residual.norm(dim=-1) / scale, products


def _cycle(operator: Operator, residual: Tensor, goal: Tensor, restart: int) -> tuple[Tensor, int]:
    """One Arnoldi cycle: the correction that minimises the residual over the Krylov space."""
    length = residual.norm(dim=-1)
    basis = [_divided(residual, length)]
    triangle: list[Tensor] = []  # columns of R, the Hessenberg matrix after its rotations
    rotations: list[tuple[Tensor, Tensor]] = []
    rotated = [length]  # the right side of the small least-squares problem
    for _ in range(restart):
        image = operator(basis[-1])
        incoming = image.norm(dim=-1)
        column = []
        for vector in basis:
            overlap = (vector * image).sum(-1)
            image = image - overlap[:, None] * vector
            column.append(overlap)
        height = image.norm(dim=-1)
        # A remainder at the level of rounding means that the space is exhausted for this row.
        height = height.masked_fill(height <= 8 * torch.finfo(height.dtype).eps * incoming, 0.0)
        for index, (cosine, sine) in enumerate(rotations):
            upper, lower = column[index], column[index + 1] if index + 1 < len(column) else height
            column[index] = cosine * upper + sine * lower
            column[index + 1] = cosine * lower - sine * upper
        diagonal = torch.hypot(column[-1], height)
        cosine = torch.where(diagonal > 0, _divided(column[-1], diagonal), 1.0)
        sine = _divided(height, diagonal)
        column[-1] = diagonal
        triangle.append(torch.stack(column, dim=-1))
        rotations.append((cosine, sine))
        rotated.append(-sine * rotated[-1])
        rotated[-2] = cosine * rotated[-2]
        if not bool((rotated[-1].abs() > goal).any()):
            break
        basis.append(_divided(image, height))
    weights = _back_substituted(triangle, rotated[:-1])
    correction = torch.zeros_like(residual)
    for weight, vector in zip(weights, basis, strict=False):
        correction = correction + weight[:, None] * vector
    return correction, len(triangle)


def _back_substituted(triangle: list[Tensor], right_side: list[Tensor]) -> list[Tensor]:
    weights: list[Tensor] = []
    for row in reversed(range(len(triangle))):
        value = right_side[row]
        for offset, weight in enumerate(weights, start=1):
            value = value - triangle[len(triangle) - offset][:, row] * weight
        weights.append(_divided(value, triangle[row][:, row]))
    return weights[::-1]


def _divided(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Division where 0/0 is 0: a row that is finished contributes nothing more."""
    if numerator.ndim > denominator.ndim:
        denominator = denominator[:, None]
    return torch.where(
        denominator != 0, numerator / torch.where(denominator != 0, denominator, 1.0), 0.0
    )
