"""A gradient of low rank is averaged exactly, whatever it looks like; on one rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hooktrace.hooks import PowerSGDState, batched_powerSGD_hook, powerSGD_hook
from hooktrace.testing import FakeBucket

HOOKS = {"by parameter": powerSGD_hook, "batched": batched_powerSGD_hook}
SIDE = 40
STEPS = 5
KINDS = ["random", "equal rows", "equal columns", "few rows", "powers of two"]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def of_rank(kind: str, rank: int, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    """Return a matrix of that rank.

    ``equal rows``: as many different ones as the rank says.  ``few rows``: all others are zero.
    """
    rows, columns = shape
    if kind == "equal columns":
        return of_rank("equal rows", rank, (columns, rows), dtype).t().contiguous()
    generator = torch.Generator().manual_seed(rank)
    matrix = torch.zeros(shape, dtype=torch.float64)
    right = torch.randn(rank, columns, generator=generator, dtype=torch.float64)
    if rank == 0:
        return matrix.to(dtype)
    if kind == "random":
        matrix = torch.randn(rows, rank, generator=generator, dtype=torch.float64) @ right
    elif kind == "few rows":
        matrix[torch.randperm(rows, generator=generator)[:rank]] = right
    else:
        if kind == "powers of two":
            right = 2.0 ** torch.randint(-4, 5, right.shape, generator=generator)
        matrix = right[torch.arange(rows) % rank]
    return matrix.to(dtype)


def error(found: torch.Tensor, matrix: torch.Tensor) -> float:
    """Return the relative error, as a multiple of the dtype's precision."""
    wide = matrix.double()
    difference = float((found.double() - wide).norm() / (wide.norm() or 1.0))
    return difference / torch.finfo(matrix.dtype).eps


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One rank."""
    store = tmp_path_factory.mktemp("group") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def averages(hook: Any, matrix: torch.Tensor, rank: int) -> list[torch.Tensor]:
    """Return what the hook makes of the same gradient in several steps, once it compresses."""
    state = PowerSGDState(
        None,
        matrix_approximation_rank=rank,
        start_powerSGD_iter=2,
        min_compression_rate=1,
        use_error_feedback=False,
    )
    bucket = FakeBucket([torch.nn.Parameter(torch.zeros_like(matrix))])
    results = []
    for _ in range(2 + STEPS):
        bucket.buffer().copy_(matrix.flatten())
        results.append(hook(state, bucket).wait().clone().view_as(matrix))
    return results[2:]


@pytest.mark.parametrize("rank", range(1, 5))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hook", HOOKS)
def test_the_average_is_the_gradient_where_the_rank_suffices(
    hook: str, dtype: torch.dtype, kind: str, rank: int
) -> None:
    """From the second step on, which starts from the gradient's own rows and not from random ones.

    Where the rank does not suffice, nothing is made up: the error is below that of no gradient.
    """
    for gradient_rank in range(6):
        matrix = of_rank(kind, gradient_rank, (SIDE, SIDE), dtype)
        _, *found = averages(HOOKS[hook], matrix, rank)
        bound = 16.0 if gradient_rank <= rank else 1 / torch.finfo(dtype).eps
        assert all(error(each, matrix) < bound for each in found), gradient_rank
