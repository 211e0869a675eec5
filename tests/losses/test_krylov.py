"""GMRES on batches of small systems, against the dense solve."""

from collections.abc import Callable

import torch
from torch import Tensor

from fenchel.losses.derived.krylov import gmres


def product(matrix: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: (matrix @ x[:, :, None])[:, :, 0]


def near_identity(rows: int, size: int, spread: float = 0.3) -> Tensor:
    noise = torch.randn(rows, size, size, dtype=torch.float64)
    return torch.eye(size, dtype=torch.float64) + spread * noise / size**0.5


def test_solution_is_the_dense_one() -> None:
    matrix, right_side = near_identity(8, 40), torch.randn(8, 40, dtype=torch.float64)
    solution, missing, products = gmres(product(matrix), right_side, tolerance=1e-13)
    torch.testing.assert_close(solution, torch.linalg.solve(matrix, right_side))
    assert (missing < 1e-12).all()
    assert 0 < products < 8 * 25


def test_restarts_reach_what_one_cycle_does_not() -> None:
    matrix, right_side = near_identity(3, 60, 0.6), torch.randn(3, 60, dtype=torch.float64)
    _, after_one, _ = gmres(product(matrix), right_side, tolerance=1e-12, restart=10, cycles=1)
    solution, after_many, products = gmres(
        product(matrix), right_side, tolerance=1e-12, restart=10, cycles=40
    )
    assert (after_one > 1e-6).all()
    assert (after_many < 1e-11).all()
    assert products > 11
    torch.testing.assert_close(solution, torch.linalg.solve(matrix, right_side))


def test_rows_of_very_different_size_are_each_solved_to_the_relative_tolerance() -> None:
    matrix = near_identity(4, 30)
    right_side = torch.randn(4, 30, dtype=torch.float64)
    size = torch.tensor([1e-12, 1.0, 1e9, 1e-3], dtype=torch.float64)[:, None]
    solution, missing, _ = gmres(product(matrix), size * right_side, tolerance=1e-13)
    assert (missing < 1e-12).all()
    torch.testing.assert_close(solution / size, torch.linalg.solve(matrix, right_side))


def test_rows_that_converge_at_once_wait_unharmed() -> None:
    matrix = near_identity(3, 30)
    matrix[0] = torch.eye(30, dtype=torch.float64)  # solved by one product
    matrix[1] = torch.diag(torch.where(torch.arange(30) < 15, 1.0, 2.0).double())  # by two
    right_side = torch.randn(3, 30, dtype=torch.float64)
    solution, missing, products = gmres(product(matrix), right_side, tolerance=1e-13)
    assert products > 3
    assert (missing < 1e-12).all()
    torch.testing.assert_close(solution, torch.linalg.solve(matrix, right_side))


def test_zero_right_side_gives_zero() -> None:
    matrix = near_identity(2, 20)
    right_side = torch.zeros(2, 20, dtype=torch.float64)
    right_side[1, 0] = 1
    solution, missing, _ = gmres(product(matrix), right_side, tolerance=1e-13)
    assert torch.equal(solution[0], torch.zeros(20, dtype=torch.float64))
    assert missing.isfinite().all()


def test_system_smaller_than_the_restart_is_solved_exactly() -> None:
    matrix, right_side = torch.randn(5, 4, 4).double(), torch.randn(5, 4).double()
    solution, _, _ = gmres(product(matrix), right_side, tolerance=1e-13)
    torch.testing.assert_close(solution, torch.linalg.solve(matrix, right_side))


def test_singular_system_reports_what_it_misses() -> None:
    matrix = torch.diag_embed(torch.tensor([[1.0, 2.0, 0.0]], dtype=torch.float64))
    solution, missing, _ = gmres(product(matrix), torch.ones(1, 3).double(), tolerance=1e-13)
    assert solution.isfinite().all()
    assert missing > 0.1


def test_row_that_is_not_finite_does_not_keep_the_others_waiting() -> None:
    matrix, right_side = near_identity(3, 40), torch.randn(3, 40, dtype=torch.float64)
    expected, _, products = gmres(product(matrix[::2]), right_side[::2], tolerance=1e-13)
    right_side[1, 0] = torch.nan
    solution, missing, spent = gmres(product(matrix), right_side, tolerance=1e-13)
    torch.testing.assert_close(solution[::2], expected)
    assert spent == products
    assert missing[1].isnan()
