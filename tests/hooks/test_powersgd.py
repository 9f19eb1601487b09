"""A gradient of low rank is averaged exactly, whatever it looks like; on one rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hooktrace.hooks import PowerSGDState, batched_powerSGD_hook, powerSGD_hook
from hooktrace.testing import FakeBucket

from .low_rank import DTYPES, KINDS, error, of_rank

HOOKS = {"by parameter": powerSGD_hook, "batched": batched_powerSGD_hook}
SIDE = 40
STEPS = 5


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
