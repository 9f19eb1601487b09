"""The order of collectives: calls of multi-round hooks run one after another, as they came.

    take_turns --> submit(start) --busy?--> waiting ...
                        |no                     |
                      start()                 start()  <- by the thread that ended the call before
                        |                       |         a turn (driver.py): go_on, and again
                     release() ------------> next one

Where callbacks run on worker threads, collectives that are issued from them would pair up
differently on each rank.  So a call with several rounds starts only when the one before it on its
group has ended: calls come from the training thread in bucket order, the same on every rank.  DDP
gets a future of the call's own.  No callback waits.  Where callbacks run inline (NCCL), a call has
ended before ``submit`` returns.

On gloo a round is issued whenever the round before it has arrived, while the training thread issues
collectives of its own, as a mixture of experts does in backward.  On one group these would pair up
differently, too: wrong data, or SIGABRT.  So rounds have a group of the same ranks to themselves,
made at the first one by a rendezvous in the job's store, and not registered with torch.distributed.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from .groups import group_info, group_timeout
from .job import new_lock, rendezvous_store, restart_count


class Sequencer:
    """Runs the calls on a process group one at a time, and has a group for their rounds.

    Each call calls ``release`` when it has ended, well or badly.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._busy = False
        self._starting = False
        # Two threads that make groups at once make them in another order on another rank.
        self._making = threading.Lock()
        self._for_rounds: Any = None
        self._key = ""

    def submit(self, start: Callable[[], None]) -> None:
        """Call ``start`` now if nothing runs, else when its turn comes.

        Whatever ``start`` does, it must see to it that ``release`` is called once.
        """
        with self._condition:
            self._waiting.append(start)
        self._pump()

    def release(self) -> None:
        """End the running call and start the next one, on this thread."""
        with self._condition:
            self._busy = False
        self._pump()

    def _pump(self) -> None:
        """Start calls until one of them stays under way, or none is left.

        One that ends inside its own start leaves the next one to this loop, and nests none.
        """
        while True:
            with self._condition:
                if self._busy or self._starting:
                    return
                if not self._waiting:
                    self._condition.notify_all()
                    return
                start = self._waiting.popleft()
                self._busy = self._starting = True
            try:
                start()
            except BaseException:
                self._starting = False
                self._pump()
                raise
            self._starting = False

    def wait_until_idle(self) -> bool:
        """Block until no call runs or waits; returns true.

        After a pass's last bucket, so that DDP's next collectives on the group (the map of unused
        parameters, buffers) come behind those of multi-round hooks on every rank.
        """
        with self._condition:
            return self._condition.wait_for(lambda: not (self._busy or self._waiting))

    def for_rounds(self, group: Any) -> dist.ProcessGroup:
        """Return the group for rounds of ``group``; blocks until all ranks ask for it."""
        with self._making:
            if not self._key:
                name = group.group_name
                self._key = f"hooktrace/rounds/{restart_count()}/{name}/{_names[name]}"
                _names[name] += 1
            if self._for_rounds is None:
                store, rank, size = rendezvous_store(self._key), group.rank(), group.size()
                made: Any = dist.ProcessGroup(store, rank, size)
                gloo = dist.ProcessGroupGloo(store, rank, size, group_timeout(group))
                kind = dist.ProcessGroup.BackendType.GLOO
                made._register_backend(torch.device("cpu"), kind, gloo)
                self._for_rounds = made
            return self._for_rounds  # type: ignore[no-any-return]


_lock = new_lock()
_sequencers: weakref.WeakKeyDictionary[object, Sequencer] = weakref.WeakKeyDictionary()
_of_no_group = Sequencer()
_names: Counter[str] = Counter()
"""How many groups of each name had one for rounds: a group may be destroyed and made again."""
_of_the_parent: list[Sequencer] = []
"""A forked child must not let go of their groups, whose end waits for threads that it has not."""


def sequencer_of(group: object | None) -> Sequencer:
    """Return the sequencer of a process group; ``None``: of hooks whose state names no group."""
    if group is None:
        return _of_no_group
    with _lock:
        sequencer = _sequencers.get(group)
        if sequencer is None:
            sequencer = _sequencers[group] = Sequencer()
        return sequencer


def round_group(group: dist.ProcessGroup, tensor: torch.Tensor) -> dist.ProcessGroup:
    """Return the group on which a round's collective is issued; ``group`` where that does no harm.

    All ranks of ``group`` must ask for it at the same round.  Blocks until they do, at most the
    group's timeout, and raises what the rendezvous raises then.
    """
    if not tensor.is_cpu or group_info(group, "cpu").backend != "gloo" or group.size() == 1:
        return group
    return sequencer_of(group).for_rounds(group)


def _begin_anew() -> None:
    """Forget all calls in a forked child, which has neither their threads nor connections."""
    global _of_no_group  # noqa: PLW0603
    _of_the_parent.extend(_sequencers.values())
    _sequencers.clear()
    _of_no_group = Sequencer()


os.register_at_fork(after_in_child=_begin_anew)


@atexit.register
def _let_go_of_groups() -> None:
    """Connections that outlive the interpreter abort the process; a call may hold its sequencer."""
    for sequencer in list(_sequencers.values()):
        sequencer._for_rounds = None
    _sequencers.clear()
