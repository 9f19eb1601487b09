"""Process groups: which one a state means, and facts about it.

A group is known by a weak reference: a destroyed one is neither kept alive nor confused with a
later one at the same address.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..records import Members


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


def part_of_job(owner: object) -> Members | None:
    """Return who is in the process group of a model or state; ``None``: all ranks, or no group."""
    with suppress(Exception):  # of a state's property
        group = getattr(owner, "process_group", owner)
        if isinstance(group, dist.ProcessGroup) and group is not dist.group.WORLD:
            return members_of(group)
    return None


class GroupInfo:
    """What is known of one process group on one kind of device.

    ``workers``: how many collectives its ``backend`` executes at once, first in first out, or 0
    where that is unknown.
    """

    def __init__(self, group: dist.ProcessGroup, device_type: str) -> None:
        self._ref = weakref.ref(group)
        self.device_type = device_type
        self.size: int = group.size()
        self.backend, self.workers = "unknown", 0
        with suppress(Exception):  # of private attributes: the queue is then unknown, no more
            backend: Any = group._get_backend(torch.device(device_type))
            self.backend = str(backend.name()).lower()
            if self.backend == "gloo":
                options = getattr(backend, "options", None)
                self.workers = int(getattr(options, "_threads", 2))  # gloo's default
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
    with suppress(Exception):  # of private attributes
        backend: Any = group._get_backend(torch.device("cpu"))
        return backend.options._timeout  # type: ignore[no-any-return]
    return dist.default_pg_timeout


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
