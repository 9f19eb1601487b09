"""The hook's own group as the one that a probe's reference goes over, on a device.

There collectives of a group run in the order in which they were issued, and hooks issue them on the
thread of the backward pass, callbacks included: with a place among them that is the same on all
ranks (``agreement.py``) the reference needs no connections of its own, and a second communicator
beside the first could block it.
"""

from __future__ import annotations

import weakref

import torch
import torch.distributed as dist

from ..staging.collectives import AllReduce, all_gather_flat
from ..staging.groups import collectives_issued, group_info
from .step_sampler import Future

_IN_ORDER = ("nccl", "xccl")
"""Backends known to run callbacks inline and collectives in the order of their issue."""


def trouble_with(group: dist.ProcessGroup, device: torch.device) -> str | None:
    """Return why no reference can go over a group that training uses, ``None`` where it can."""
    backend = group_info(group, device.type).backend
    if device.type != "cpu" and backend not in _IN_ORDER:
        return (
            f"on a {device.type} device that is known to be safe over {' and '.join(_IN_ORDER)} "
            f"only, and its process group is one of {backend}"
        )
    try:
        collectives_issued(group, device)
    except Exception as error:  # a private function
        return f"this version of torch does not count collectives ({type(error).__name__}: {error})"
    return None


class DeviceGroup:
    """A model's ranks on a device, by the group that its hook uses; raises when it is gone."""

    def __init__(self, group: dist.ProcessGroup, device: torch.device) -> None:
        self._ref = weakref.ref(group)
        self._device = device
        self.size: int = group.size()

    def issued(self) -> int:
        """Return how many collectives this rank has issued on the group."""
        return collectives_issued(self._group, self._device)

    def average(self, tensor: torch.Tensor) -> Future:
        """Average in place, rounding as ``allreduce_hook`` does: divide, then add."""
        return AllReduce(tensor.div_(self.size), self._group).start()

    def gather(self, tensor: torch.Tensor, rows: torch.Tensor) -> Future:
        """Write every rank's ``tensor`` to a row of ``rows``."""
        work = all_gather_flat(rows.view(-1), tensor, group=self._group, async_op=True)
        return work.get_future()

    @property
    def _group(self) -> dist.ProcessGroup:
        group = self._ref()
        if group is None:
            raise RuntimeError("the hook's process group was destroyed")
        return group
