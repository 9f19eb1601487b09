"""Orthonormal columns, also of matrices of lower rank than they have columns."""

from __future__ import annotations

import pytest
import torch

from hooktrace.hooks.lowrank import orthogonalize

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def of_rank(rank: int, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    """Return a matrix of that rank whose rows and columns are of size about 1."""
    generator = torch.Generator().manual_seed(rank)
    left = torch.randn(shape[0], rank, generator=generator, dtype=torch.float64)
    right = torch.randn(rank, shape[1], generator=generator, dtype=torch.float64)
    return (left @ right).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [2, 4])
@pytest.mark.parametrize("rank", [1, 2])
def test_the_product_is_the_matrix_where_the_rank_suffices(
    dtype: torch.dtype, columns: int, rank: int
) -> None:
    """P transpose(P) M = M for P from M times anything, with more columns than M has rank."""
    matrix = of_rank(rank, (48, 32), dtype)
    generator = torch.Generator().manual_seed(9)
    p = matrix @ torch.randn(32, columns, generator=generator).to(dtype)
    orthogonalize(p[None])
    wide, basis = matrix.double(), p.double()
    error = (basis @ (basis.t() @ wide) - wide).norm() / wide.norm()
    assert error < 40 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_spent_column_is_that_of_the_restart(dtype: torch.dtype) -> None:
    """A column that the first makes up, and one of zeros."""
    columns = torch.tensor([[3.0, 6.0], [4.0, 8.0], [0.0, 0.0]], dtype=dtype)
    restart = torch.tensor([[[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]], dtype=dtype)
    orthogonalize(columns[None], restart=restart)
    assert columns[:, 1].tolist() == [0.0, 0.0, 1.0]
    zeros = torch.zeros(1, 3, 2, dtype=dtype)
    orthogonalize(zeros)
    assert zeros.count_nonzero() == 0
