"""What a hook gave is looked at before DDP sees it; on real ranks in distributed/test_training."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hooktrace.staging.result_check import no_future, wrong_result

NUMEL = 20
DENSE: Any = SimpleNamespace(
    torch_dtype=torch.float32,
    dtype="float32",
    device=torch.device("cpu"),
    numel=NUMEL,
    is_dense=True,
)
SPARSE: Any = SimpleNamespace(**{**vars(DENSE), "is_dense": False})

RIGHT = {
    "flat": torch.zeros(NUMEL),
    "a view from the storage's beginning": torch.zeros(2 * NUMEL)[:NUMEL],
    "of another floating-point dtype": torch.zeros(NUMEL, dtype=torch.float16),
}
WRONG = {
    "dtype": (torch.zeros(NUMEL, dtype=torch.int64), "is int64 and the gradients are float32"),
    "too long": (torch.zeros(NUMEL + 1), "has 21 elements and the bucket 20"),
    "strides": (torch.zeros(2 * NUMEL)[::2], "has strides (2,)"),
    "offset": (torch.zeros(NUMEL + 4)[4:], "begins at offset 4 of its storage"),
    "layout": (torch.zeros(NUMEL).to_sparse(), "is sparse_coo; return a dense tensor"),
    "device": (torch.zeros(NUMEL, device="meta"), "is on meta; return it on the bucket's device"),
    "nothing": (None, "the hook returned None; return the averaged gradients"),
    "a list": ([torch.zeros(NUMEL)], "returned a list of 1, as a collective's own future"),
    "an exception": (ValueError("boom"), "holds the exception ValueError: boom"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_ddp_reads_as_it_is_meant_passes(name: str) -> None:
    """DDP converts other floating-point dtypes, and reads from the storage's beginning."""
    assert wrong_result(RIGHT[name], DENSE) is None


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name: str) -> None:
    """The first thing that DDP would take for granted."""
    result, said = WRONG[name]
    error = wrong_result(result, DENSE)
    assert isinstance(error, TypeError)
    assert said in str(error)


def test_a_sparse_bucket_has_a_sparse_result() -> None:
    """Which has no memory to look at."""
    assert wrong_result(torch.zeros(NUMEL).to_sparse(), SPARSE) is None


def test_without_a_bucket_only_the_type_is_known() -> None:
    """Untraced."""
    assert wrong_result(torch.zeros(3, dtype=torch.int64), None) is None
    assert wrong_result(3, None) is not None


def test_what_an_opaque_hook_returns_is_a_future() -> None:
    """The error says which."""
    assert "the hook returned None and not a future; return a torch" in str(no_future(None))
