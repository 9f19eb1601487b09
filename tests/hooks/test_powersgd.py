"""A gradient of low rank is averaged exactly, whatever it looks like; on one rank."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from hooktrace.hooks import PowerSGDState, batched_powerSGD_hook, powerSGD_hook
from hooktrace.testing import FakeBucket

HOOKS = {"by parameter": powerSGD_hook, "batched": batched_powerSGD_hook}
SIDE = 40
STEPS = 5
KINDS = ["random", "equal rows", "equal columns", "few rows"]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def of_rank(kind: str, rank: int, dtype: torch.dtype) -> torch.Tensor:
    """Return a matrix of that rank."""
    generator = torch.Generator().manual_seed(rank)
    right = torch.randn(rank, SIDE, generator=generator, dtype=torch.float64)
    left = (torch.arange(SIDE)[:, None] % max(rank, 1) == torch.arange(rank)).double()
    if kind == "random":
        left = torch.randn(SIDE, rank, generator=generator, dtype=torch.float64)
    elif kind == "few rows":
        left = left * (torch.arange(SIDE) < rank)[torch.randperm(SIDE, generator=generator), None]
    matrix = (left @ right).to(dtype)
    return matrix.t().contiguous() if kind == "equal columns" else matrix


def error(found: torch.Tensor, matrix: torch.Tensor) -> float:
    """Return the relative error, as a multiple of the dtype's precision."""
    wide = matrix.double()
    difference = float((found.double() - wide).norm() / (wide.norm() or 1.0))
    return difference / torch.finfo(matrix.dtype).eps


def averages(hook: Any, matrix: torch.Tensor, rank: int) -> list[torch.Tensor]:
    """Return what the hook makes of the same gradient in several steps, once it compresses."""
    options = {"start_powerSGD_iter": 2, "min_compression_rate": 1, "use_error_feedback": False}
    state = PowerSGDState(None, matrix_approximation_rank=rank, **options)  # type: ignore[arg-type]
    bucket = FakeBucket([torch.nn.Parameter(torch.zeros_like(matrix))])
    results = []
    for _ in range(2 + STEPS):
        bucket.buffer().copy_(matrix.flatten())
        results.append(hook(state, bucket).wait().clone().view_as(matrix))
    return results[2:]


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hook", HOOKS)
def test_the_average_is_the_gradient_where_the_rank_suffices(
    hook: str, dtype: torch.dtype, kind: str
) -> None:
    """From the second step on, which starts from the gradient's own rows, not from random ones."""
    for rank, gradient_rank in product(range(1, 5), range(6)):
        matrix = of_rank(kind, gradient_rank, dtype)
        _, *found = averages(HOOKS[hook], matrix, rank)
        bound = 16.0 if gradient_rank <= rank else 1 / torch.finfo(dtype).eps
        assert all(error(each, matrix) < bound for each in found), (rank, gradient_rank)
