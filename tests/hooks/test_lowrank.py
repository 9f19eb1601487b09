"""Columns that are odd; of those of gradients: test_powersgd.py."""

from __future__ import annotations

import pytest
import torch

from hooktrace.hooks.lowrank import orthogonalize

from .test_powersgd import DTYPES


@pytest.mark.parametrize("dtype", DTYPES)
def test_columns_that_are_the_same_but_for_rounding_or_not_finite(dtype: torch.dtype) -> None:
    """At right angles to each other, as if drawn at random; NaN is for the loss scaler to see."""
    generator = torch.Generator().manual_seed(4)
    column = torch.randn(64, 1, generator=generator, dtype=torch.float64)
    eps = torch.finfo(dtype).eps
    noise = torch.randn(64, 2, generator=generator, dtype=torch.float64) * eps
    columns = (column + noise).to(dtype)
    odd = columns.clone()
    orthogonalize(columns[None])
    assert (columns[:, 0].double() @ columns[:, 1].double()).abs() < 8 * eps
    odd[3, 1] = float("inf")
    orthogonalize(odd[None])
    assert odd[:, 1].isnan().any()


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
