"""A hook for dense floating-point gradients refuses others, by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hooktrace.staging.gradient_kinds import refuse_bucket, refuse_model


class Bucket:
    """The third bucket, with one buffer."""

    def __init__(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def index(self) -> int:
        return 2


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
        refuse_bucket("half", Bucket(buffer))


def test_other_floating_point_types_pass() -> None:
    """Whatever their width."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        refuse_bucket("half", Bucket(torch.zeros(2, dtype=dtype)))


def test_a_model_is_refused_by_its_parameter() -> None:
    """A sparse embedding by its module's name; frozen parameters have no gradients."""
    complex_one = nn.ParameterDict({"w": nn.Parameter(torch.zeros(2, dtype=torch.complex64))})
    with pytest.raises(TypeError, match="those of w are complex64"):
        refuse_model("half", complex_one)
    refuse_model("half", complex_one.requires_grad_(False))
    with pytest.raises(TypeError, match="those of 1 are sparse"):
        refuse_model("half", nn.Sequential(nn.Linear(2, 2), nn.Embedding(3, 2, sparse=True)))
    refuse_model("half", nn.Sequential(nn.Linear(2, 2), nn.Embedding(3, 2)))
