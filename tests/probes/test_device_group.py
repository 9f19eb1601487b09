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

    def __init__(self, name: str, issued: int | None = None) -> None:
        self._name, self._issued = name, issued

    def size(self) -> int:
        return 4

    def name(self) -> str:
        return self._name

    def _get_backend(self, device: torch.device) -> Group:
        return self

    def _get_sequence_number_for_group(self) -> int:
        if self._issued is None:
            raise RuntimeError("no sequence numbers")
        return self._issued


def test_where_callbacks_run_on_threads_of_their_own_it_may_not() -> None:
    """With gloo: it takes a device's tensors too, and the order of its callbacks is nobody's."""
    group: Any = Group("gloo", 3)
    why = trouble_with(group, CUDA)
    assert why is not None
    assert "is one of gloo" in why


@pytest.mark.parametrize("issued", [None, 3])
def test_collectives_have_to_be_counted(issued: int | None) -> None:
    """Without a count nobody knows whether the ranks are at one place."""
    group: Any = Group("nccl", issued)
    why = trouble_with(group, CUDA)
    assert why == (
        "this version of torch does not count collectives (RuntimeError: no sequence numbers)"
        if issued is None
        else None
    )


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
