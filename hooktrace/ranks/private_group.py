"""A process group of hooktrace's own, whose few collectives cannot pair up with the hook's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from .job import rendezvous_store

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

    def latest(self, step: int) -> int:
        """Return the largest ``step`` of all ranks; waits for them."""
        steps = torch.tensor([step])
        options: Any = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        self._group.allreduce([steps], options).wait()
        return int(steps)

    def average(self, tensor: torch.Tensor) -> Future:
        """Average in place, rounding as ``allreduce_hook`` does: divide, then add."""
        return self._group.allreduce([tensor.div_(self.size)]).get_future()

    def gather(self, tensor: torch.Tensor, rows: torch.Tensor) -> Future:
        """Write every rank's ``tensor`` to a row of ``rows``."""
        return self._group.allgather([list(rows)], [tensor]).get_future()
