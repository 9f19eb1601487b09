"""A hook for dense floating-point gradients refuses others, by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from hooktrace.staging.hook_checks import refuse_bucket, refuse_model, wrong_result


@pytest.mark.parametrize(
    ("buffer", "kind"),
    [
        (torch.zeros(2).to_sparse(), "sparse"),
        (torch.zeros(2, dtype=torch.complex64), "complex64"),
        (torch.zeros(2, dtype=torch.int8), "int8"),
    ],
    ids=["sparse", "complex", "integers"],
)
def test_a_bucket_of_another_kind_is_refused(buffer: Any, kind: str) -> None:
    """The error names the hook, the bucket and the kind."""
    with pytest.raises(TypeError, match=rf"hook half takes .* of bucket 2 are {kind}; use allre"):
        refuse_bucket("half", SimpleNamespace(buffer=lambda: buffer, index=lambda: 2))


def test_a_model_is_refused_by_its_parameter() -> None:
    """A sparse embedding by its module's name; frozen parameters have no gradients."""
    complex_one = nn.ParameterDict({"w": nn.Parameter(torch.zeros(2, dtype=torch.complex64))})
    with pytest.raises(TypeError, match="those of w are complex64"):
        refuse_model("half", complex_one)
    refuse_model("half", complex_one.requires_grad_(False))
    with pytest.raises(TypeError, match="those of 1 are sparse"):
        refuse_model("half", nn.Sequential(nn.Linear(2, 2), nn.Embedding(3, 2, sparse=True)))


NUMEL = 20
DENSE: Any = SimpleNamespace(torch_dtype=torch.float32, dtype="float32", numel=NUMEL, is_dense=True)
DENSE.device = torch.device("cpu")
SPARSE: Any = SimpleNamespace(**{**vars(DENSE), "is_dense": False})

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


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name: str) -> None:
    """The first thing that DDP would take for granted; untraced only the type is known."""
    result, said = WRONG[name]
    assert said in str(wrong_result(result, DENSE))
    assert (wrong_result(result, None) is None) == isinstance(result, torch.Tensor)


def test_what_ddp_reads_as_it_is_meant_passes() -> None:
    """It reads from the storage's beginning, and converts other floating-point dtypes."""
    half = torch.zeros(NUMEL, dtype=torch.bfloat16)
    for result in (torch.zeros(NUMEL), torch.zeros(2 * NUMEL)[:NUMEL], half):
        assert wrong_result(result, DENSE) is None
    assert wrong_result(torch.zeros(NUMEL).to_sparse(), SPARSE) is None
