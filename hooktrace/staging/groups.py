"""Process groups: which one a state means, facts about it, and groups of their own for rounds.

A group is known by a weak reference: a destroyed one is neither kept alive nor confused with a
later one at the same address.

*Round groups.*  On gloo a round is issued whenever the round before it has arrived, while the
training thread issues collectives of its own, as a mixture of experts does in backward.  On one
group they would pair up differently on each rank: wrong data, or SIGABRT.  So rounds have a group
of the same ranks to themselves, made at the first one by a rendezvous in the job's store, and not
registered with torch.distributed; their order is ``order.py``'s.
"""

from __future__ import annotations

import atexit
import collections
import itertools
import os
import threading
import weakref
from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..records import Members
from .job import new_lock, rendezvous_store, restart_count


def members_of(group: dist.ProcessGroup) -> Members | None:
    """Return a group's ranks in the job as ``range`` takes them; ``None`` where they are none."""
    try:
        ranks = dist.get_process_group_ranks(group)
    except Exception:  # of a group that was destroyed
        return None
    if not ranks:
        return None
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    found = (ranks[0], ranks[-1] + 1, stride)
    return found if stride > 0 and ranks == list(range(*found)) else None


_DEFAULT_GLOO_WORKERS = 2


class GroupInfo:
    """What is known of one process group on one kind of device.

    ``workers``: how many collectives its ``backend`` executes at once, first in first out, or 0
    where that is unknown.  ``key`` names it in the drain.
    """

    _keys = itertools.count()

    def __init__(self, group: dist.ProcessGroup, device_type: str) -> None:
        self._ref = weakref.ref(group)
        self.device_type = device_type
        self.size: int = group.size()
        self.key = next(self._keys)
        self.backend, self.workers = "unknown", 0
        with suppress(Exception):  # of private attributes: the queue is then unknown, no more
            backend: Any = group._get_backend(torch.device(device_type))
            self.backend = str(backend.name()).lower()
            if self.backend == "gloo":
                options = getattr(backend, "options", None)
                self.workers = int(getattr(options, "_threads", _DEFAULT_GLOO_WORKERS))
            # NCCL (of torch 2.15 also "nccl2") executes a communicator's one after another.
            elif self.backend.startswith("nccl"):
                self.workers = 1

    @property
    def members(self) -> Members | None:
        """The group's ranks in the job; ``None`` where it is gone, or they are no range."""
        group = self._ref()
        return None if group is None else members_of(group)


_infos: dict[tuple[int, str], GroupInfo] = {}
_last: GroupInfo | None = None


def group_info(group: dist.ProcessGroup, device_type: str) -> GroupInfo:
    """Return the facts of a group; a comparison for the group that was asked for last."""
    global _last  # noqa: PLW0603  # a look-up in the dictionary costs a microsecond more
    last = _last  # read once: another thread may put its own group there
    if last is not None and last._ref() is group and last.device_type == device_type:
        return last
    key = (id(group), device_type)
    info = _infos.get(key)
    if info is None or info._ref() is not group:
        for stale in [k for k, v in list(_infos.items()) if v._ref() is None]:
            _infos.pop(stale, None)  # another thread may have been here
        info = _infos[key] = GroupInfo(group, device_type)
    _last = info
    return info


def group_of(state: object) -> dist.ProcessGroup:
    """Return the process group that a hook's state means.

    ``None`` is the default group, as in torch's hooks; a process group is itself; anything else is
    asked for its ``process_group``.  Raises ``RuntimeError`` when the default group is meant and
    there is none, ``TypeError`` for a state that has no process group.
    """
    if state is not None and not isinstance(state, dist.ProcessGroup):
        try:
            state = state.process_group  # type: ignore[attr-defined]
        except AttributeError:
            raise TypeError(
                f"the hook's state is a {type(state).__name__}, which has no process_group; "
                "register the hook with state=None, a process group, or an object that has one"
            ) from None
    group: Any = dist.group.WORLD if state is None else state
    if group is None:
        raise RuntimeError(
            "there is no default process group; call torch.distributed.init_process_group first"
        )
    return group  # type: ignore[no-any-return]


def group_timeout(group: dist.ProcessGroup) -> timedelta:
    """Return how long the group's collectives wait for a rank; torch's default where unknown."""
    try:
        backend: Any = group._get_backend(torch.device("cpu"))
        found = backend.options._timeout
    except Exception:  # private attributes
        return dist.default_pg_timeout
    return found if isinstance(found, timedelta) else dist.default_pg_timeout


def collectives_issued(group: dist.ProcessGroup, device: torch.device) -> int:
    """Return how many collectives this rank has issued on a group's backend for a device.

    Raises ``RuntimeError`` or ``AttributeError`` where the backend does not count.
    """
    backend: Any = group._get_backend(device)
    return int(backend._get_sequence_number_for_group())


def known_groups() -> Collection[dist.ProcessGroup]:
    """Return the groups that torch.distributed has made here; none where it hides them."""
    world: Any = getattr(dist.distributed_c10d, "_world", None)
    return getattr(world, "pg_map", ())


def require_member(owner: str, name: str, group: object) -> None:
    """Raise ``ValueError`` for a group that this rank is not in, ``TypeError`` for what is none."""
    if group is None or isinstance(group, dist.ProcessGroup):
        return
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError(
            f"{owner}: this rank is not in its {name}; pass each rank the group that it is in"
        )
    raise TypeError(
        f"{owner}: {name} is a {type(group).__name__}; pass a torch.distributed process group"
    )


_lock = new_lock()
_made: weakref.WeakKeyDictionary[dist.ProcessGroup, _RoundGroup] = weakref.WeakKeyDictionary()
_names: collections.Counter[str] = collections.Counter()
"""How many groups of each name had one made: a group may be destroyed and made again."""


class _RoundGroup:
    """The group beside another one, made when it is asked for first.

    With a lock of its own: two threads may make two, in another order on another rank.
    """

    def __init__(self, group: Any) -> None:
        name = group.group_name
        self._lock = threading.Lock()
        self._key = f"hooktrace/rounds/{restart_count()}/{name}/{_names[name]}"
        _names[name] += 1
        self._made: Any = None

    def get(self, group: dist.ProcessGroup) -> dist.ProcessGroup:
        """Return it; blocks until all ranks are there."""
        with self._lock:
            if self._made is None:
                store, rank, size = rendezvous_store(self._key), group.rank(), group.size()
                made: Any = dist.ProcessGroup(store, rank, size)
                gloo = dist.ProcessGroupGloo(store, rank, size, group_timeout(group))
                kind = dist.ProcessGroup.BackendType.GLOO
                made._register_backend(torch.device("cpu"), kind, gloo)
                self._made = made
            return self._made  # type: ignore[no-any-return]


def round_group(group: dist.ProcessGroup, tensor: torch.Tensor) -> dist.ProcessGroup:
    """Return the group on which a round's collective is issued; ``group`` where that does no harm.

    All ranks of ``group`` must ask for it at the same round.  Blocks until they do, at most the
    group's timeout, and raises what the rendezvous raises then.
    """
    if not tensor.is_cpu or group_info(group, "cpu").backend != "gloo" or group.size() == 1:
        return group
    with _lock:
        beside = _made.get(group)
        if beside is None:
            beside = _made[group] = _RoundGroup(group)
    return beside.get(group)


_of_the_parent: list[_RoundGroup] = []
"""Groups that a forked child must not let go of: their end waits for threads that it has not."""


def _forget() -> None:
    """Begin anew in a forked child, which has none of the connections' threads."""
    _of_the_parent.extend(_made.values())
    _made.clear()


os.register_at_fork(after_in_child=_forget)
atexit.register(_made.clear)  # connections that outlive the interpreter abort the process
