"""A process group of hooktrace's own, whose few collectives cannot pair up with the hook's."""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..staging.job import rendezvous_store
from .native_calls import call_aside, result_aside

_LOOK_S = 0.1
"""Between two looks whether another rank has given up, while the ranks meet."""

Future = Any  # torch.futures.Future or torch._C.Future


class PrivateGroup:
    """Some ranks of the job on gloo connections of their own, with their own worker threads.

    It is not registered with torch.distributed, so nothing else meets it.  ``prefix``: of keys in
    the job's store that only this group uses.  ``rank`` of ``size``: this one's place in it.
    Blocks until all ranks are there, for at most ``timeout``, which bounds its collectives too.
    """

    def __init__(self, prefix: str, rank: int, size: int, timeout: timedelta) -> None:
        self.rank = rank
        self.size = size
        self._group: Any = dist.ProcessGroupGloo(rendezvous_store(prefix), rank, size, timeout)

    def close(self) -> None:
        """Let go of the connections, so that what other ranks wait for fails; waits for nothing.

        Their end waits for what is under way, and cannot come on a thread of their own.
        """
        if self._group is None:
            return
        held, self._group = [self._group], None
        call_aside(held.clear, "hooktrace-group")

    def leave_with_parent(self) -> None:
        """In a forked child: never end, which would wait for threads that it has not."""
        _of_the_parent.append(self._group)

    def average(self, tensor: torch.Tensor) -> Future:
        """Average in place, rounding as ``allreduce_hook`` does: divide, then add."""
        return self._group.allreduce([tensor.div_(self.size)]).get_future()

    def gather(self, tensor: torch.Tensor, rows: torch.Tensor) -> Future:
        """Write every rank's ``tensor`` to a row of ``rows``."""
        return self._group.allgather([list(rows)], [tensor]).get_future()


def made_unless(is_over: Callable[[], bool], make: Callable[[], PrivateGroup]) -> PrivateGroup:
    """Return the group, whose ranks wait for each other; raises where it failed on one of them."""
    made = result_aside(make, "hooktrace-meeting")
    while not futures.wait([made], _LOOK_S).done:
        if is_over():
            raise RuntimeError("another rank could not meet")
    return made.result()


_of_the_parent: list[object] = []
