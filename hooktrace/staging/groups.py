"""Process groups: which one a hook's state means, and facts about it, looked up once a group.

A group's facts are kept under its identity with a weak reference, so that a destroyed group is
neither kept alive nor confused with a later one at the same address.
"""

from __future__ import annotations

import itertools
import weakref
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..capture.members import members_of
from ..records import Members

_DEFAULT_GLOO_WORKERS = 2


class GroupInfo:
    """What is known of one process group on one kind of device.

    ``size``: number of ranks.  ``backend``: ``gloo``, ``nccl``, ...  ``workers``: how many
    collectives it executes at once, first in first out, or 0 where that is unknown.
    ``key`` names it in the drain.
    """

    __slots__ = ("_ref", "backend", "device_type", "key", "size", "workers")

    @property
    def members(self) -> Members | None:
        """The group's ranks in the job; ``None`` where it is gone, or they are no range."""
        group = self._ref()
        return None if group is None else members_of(group)

    _keys = itertools.count()

    def __init__(self, group: dist.ProcessGroup, device_type: str) -> None:
        self._ref = weakref.ref(group)
        self.device_type = device_type
        self.size: int = group.size()
        self.backend, self.workers = _backend_facts(group, device_type)
        self.key = next(self._keys)


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
    asked for its ``process_group`` (``None`` again means the default group).

    Raises ``RuntimeError`` when the default group is meant and there is none, ``TypeError`` for a
    state that has no process group.
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

    Raises ``RuntimeError`` where the backend does not count, ``AttributeError`` where this version
    of torch has another name for it.
    """
    backend: Any = group._get_backend(device)
    return int(backend._get_sequence_number_for_group())


def only_default_group() -> bool:
    """Return whether the default group is the only one, so that a hook cannot mean another."""
    known = getattr(getattr(dist.distributed_c10d, "_world", None), "pg_map", None)
    return known is not None and len(known) == 1


def require_member(owner: str, name: str, group: object) -> None:
    """Check a state's argument: ``None``, or a process group that this rank is in.

    Raises ``ValueError`` for what ``dist.new_group`` gives a rank outside, ``TypeError`` for what
    is no process group.
    """
    if group is None or isinstance(group, dist.ProcessGroup):
        return
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError(
            f"{owner}: this rank is not in its {name}; pass each rank the group that it is in"
        )
    raise TypeError(
        f"{owner}: {name} is a {type(group).__name__}; pass a torch.distributed process group"
    )


def _backend_facts(group: dist.ProcessGroup, device_type: str) -> tuple[str, int]:
    """Return (backend name, workers); both come from private attributes, so each has a fallback."""
    try:
        backend: Any = group._get_backend(torch.device(device_type))
        name = str(backend.name()).lower()
    except Exception:  # whatever a private attribute does: the queue is then unknown, no more
        return "unknown", 0
    if name == "gloo":
        options = getattr(backend, "options", None)
        return name, int(getattr(options, "_threads", _DEFAULT_GLOO_WORKERS))
    # NCCL executes a communicator's collectives one after another on one stream.
    return name, 1 if name == "nccl" else 0
