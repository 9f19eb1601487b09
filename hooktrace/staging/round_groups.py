"""A group of connections of their own for the rounds of multi-round hooks.

    operation of a round --issue--> round_group(its group) --> the same ranks, other connections

Where callbacks run on worker threads (gloo), a round is issued whenever the round before it has
arrived, and the training thread issues collectives of its own meanwhile: those of a mixture of
experts in backward, of ``torch.distributed.nn``.  On one group they would pair up differently on
each rank, which ends in wrong data or in SIGABRT.  On a group of their own the rounds need an order
only among themselves, and the sequencer gives them that.

The group is made at the first round: a rendezvous in the job's store, no collective.  It is not
registered with torch.distributed, so that its name follows from that of the hook's group and nobody
else's, whichever thread makes it first.
"""

from __future__ import annotations

import atexit
import collections
import os
import threading
import weakref
from typing import Any

import torch
import torch.distributed as dist

from ..ranks.job import has_job_store, rendezvous_store, restart_count
from .groups import group_info, group_timeout

_CAN_REGISTER = hasattr(dist.ProcessGroup, "_register_backend")
_lock = threading.Lock()
_made: weakref.WeakKeyDictionary[dist.ProcessGroup, _RoundGroup] = weakref.WeakKeyDictionary()
_names: collections.Counter[str] = collections.Counter()
"""How many groups of each name had one made: a group may be destroyed and made again."""


class _RoundGroup:
    """The group beside another one, made when it is asked for first.

    The lock is its own: two threads may make two of them, in another order on another rank.
    """

    def __init__(self, group: Any) -> None:
        self._lock = threading.Lock()
        self._key = f"hooktrace/rounds/{restart_count()}/{group.group_name}"
        self._key += f"/{_names[group.group_name]}"
        _names[group.group_name] += 1
        self._made: Any = None

    def get(self, group: dist.ProcessGroup) -> dist.ProcessGroup:
        """Return it; blocks until all ranks are there."""
        with self._lock:
            if self._made is None:
                self._made = _connect(self._key, group)
            return self._made  # type: ignore[no-any-return]


def round_group(group: dist.ProcessGroup, tensor: torch.Tensor) -> dist.ProcessGroup:
    """Return the group on which a round's collective is issued; ``group`` where that does no harm.

    All ranks of ``group`` must ask for it at the same round.  Blocks until they do, at most the
    group's timeout, and raises what the rendezvous raises then.  Where torch lacks what it takes,
    on all ranks alike, it is ``group``.
    """
    if not _CAN_REGISTER or not has_job_store():
        return group
    if not tensor.is_cpu or group_info(group, "cpu").backend != "gloo" or group.size() == 1:
        return group
    with _lock:
        beside = _made.get(group)
        if beside is None:
            beside = _made[group] = _RoundGroup(group)
    return beside.get(group)


def _connect(key: str, group: dist.ProcessGroup) -> Any:
    rank, size = group.rank(), group.size()
    store = rendezvous_store(key)
    made: Any = dist.ProcessGroup(store, rank, size)
    backend = dist.ProcessGroupGloo(store, rank, size, group_timeout(group))
    made._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)
    return made


_of_the_parent: list[_RoundGroup] = []
"""Groups that a forked child must not let go of: their end waits for threads that it has not."""


def _forget() -> None:
    """Begin anew in a forked child, which has none of the connections' threads."""
    global _lock  # noqa: PLW0603  # it may have been held by a thread that is not there
    _lock = threading.Lock()
    _of_the_parent.extend(_made.values())
    _made.clear()


os.register_at_fork(after_in_child=_forget)
atexit.register(_made.clear)  # connections that outlive the interpreter abort the process
