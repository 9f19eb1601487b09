"""Which groups a reference may go over, and that none is kept alive by it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

from hooktrace.probes import device_group
from hooktrace.probes.device_group import DeviceGroup, trouble_with

CUDA = torch.device("cuda", 0)


class Group:
    """A process group of four whose backend has a name, and counts or does not."""

    def __init__(self, name: str, issued: int | None) -> None:
        self._issued = issued
        self.name, self.size = lambda: name, lambda: 4

    def _get_backend(self, device: torch.device) -> Group:
        return self

    def _get_sequence_number_for_group(self) -> int:
        if self._issued is None:
            raise RuntimeError("no sequence numbers")
        return self._issued


@pytest.mark.parametrize(
    ("name", "issued", "why"),
    [
        ("gloo", 3, "is one of gloo"),  # its callbacks run on threads, in no order
        ("nccl", 3, None),
        ("nccl", None, "does not count collectives (RuntimeError: no sequence numbers)"),
    ],
)
def test_where_ranks_could_get_apart_it_may_not(
    name: str, issued: int | None, why: str | None
) -> None:
    """Nobody knows there whether the ranks are at one place."""
    found = trouble_with(Group(name, issued), CUDA)  # type: ignore[arg-type]
    assert found is None if why is None else why in (found or "")


def test_it_speaks_for_the_group_as_long_as_that_is_there() -> None:
    """A group that is destroyed is not kept, and nothing is issued on it."""
    group: Any = Group("nccl", 7)
    device, gone = DeviceGroup(group, CUDA), weakref.ref(group)
    assert (device.size, device.issued()) == (4, 7)
    del group
    device_group.group_info.__globals__["_last"] = None
    gc.collect()
    assert gone() is None
    with pytest.raises(RuntimeError, match="destroyed"):
        device.issued()
