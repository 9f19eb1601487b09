"""What of a hook's collectives is heard, in a group of this process alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from hooktrace.records import Transfer
from hooktrace.testing.check.wire import Heard, WireFormat, format_of, listening

wait = functional.wait_tensor
GIVEN = torch.ones(4)
WHOLE = Transfer(collective="allreduce", dtype="float32", wire_bytes=16)


@pytest.mark.parametrize(
    ("issue", "heard"),
    [
        (lambda: dist.all_reduce(GIVEN), [WHOLE]),
        (lambda: dist.group.WORLD.allreduce(tensors=[GIVEN]).wait(), [None]),
        (lambda: wait(functional.all_reduce(GIVEN, "sum", dist.group.WORLD)), [None]),
    ],
    ids=["by torch's function", "by names", "functional"],
)
def test_what_is_not_heard_is_noticed(issue: Callable[[], Any], heard: Heard, alone: None) -> None:
    """A format that is made of a part would call what the rest loses a fault."""
    found: Heard = []
    with listening(found):
        issue()
    issue()
    assert found == heard
    known = format_of([WHOLE, *found], 4, 1)
    assert known == (WireFormat() if None in heard else WireFormat(4, "float32", 64.0))
