"""Columns that are odd; of those of gradients: test_powersgd.py."""

from __future__ import annotations

import pytest
import torch

from hooktrace.hooks.lowrank import orthogonalize

from .test_powersgd import DTYPES


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_finite_stays_so(dtype: torch.dtype) -> None:
    """It is for the loss scaler to see."""
    columns = torch.randn(16, 2, generator=torch.Generator().manual_seed(1)).to(dtype)
    columns[3, 1] = float("inf")
    orthogonalize(columns[None])
    assert columns[:, 1].isnan().any()


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
