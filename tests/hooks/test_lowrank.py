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
def test_columns_that_are_the_same_but_for_rounding(dtype: torch.dtype) -> None:
    """They come out at right angles to each other, as if they had been drawn at random."""
    eps = torch.finfo(dtype).eps
    generator = torch.Generator().manual_seed(4)
    column = torch.randn(64, 1, generator=generator, dtype=torch.float64)
    noise = torch.randn(64, 3, generator=generator, dtype=torch.float64) * eps
    columns = (column + noise).to(dtype)[:, :2].contiguous()
    orthogonalize(columns[None])
    assert (columns[:, 0].double() @ columns[:, 1].double()).abs() < 8 * eps


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_column_of_zeros_is_that_of_the_restart(dtype: torch.dtype) -> None:
    """And stays zero without one."""
    columns = torch.tensor([[3.0, 0.0], [4.0, 0.0], [0.0, 0.0]], dtype=dtype)
    restart = torch.tensor([[[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]], dtype=dtype)
    zeros = columns.clone()
    orthogonalize(zeros[None])
    assert zeros[:, 1].count_nonzero() == 0
    orthogonalize(columns[None], restart=restart)
    assert columns[:, 1].tolist() == [0.0, 0.0, 1.0]
