"""What is found of a suspended hook's tensors, and what is remembered of the way to them."""

from __future__ import annotations

from typing import Any

import torch

from hooktrace.staging import streams
from hooktrace.testing import FakeBucket
from tests.fakes import FakeOperation


def held_by(*values: Any) -> list[torch.Tensor]:
    """Return what is found of a hook that holds values at its yield."""

    def hook(state: Any, bucket: Any) -> Any:
        kept = values  # noqa: F841  # a local variable, as a hook has them
        yield FakeOperation(4)

    bucket = FakeBucket([torch.nn.Parameter(torch.ones(4))], 0, is_last=False)
    steps = hook(None, bucket)
    return streams.held_tensors(steps, None, next(steps), bucket)


def test_tensors_are_found_among_many_objects() -> None:
    """Behind numbers, in a list, once each."""
    one, other = torch.ones(1), torch.ones(2)
    found = held_by([*range(100), one, {"more": [other, one]}])
    assert len(found) == 2
    assert {id(each) for each in found} == {id(one), id(other)}
