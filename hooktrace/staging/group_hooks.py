"""Collectives that a plain hook issues, as torch's process groups tell them (torch >= 2.14).

    launch_opaque --begin(run)--> the run is this thread's
      group --before--> SeenCollective: kind, bytes, when it was issued --> run.seen
            --after---> its future --> when it arrived; the run is that thread's, too, since the
                        hook's own callbacks come next
    launch_opaque --returned--> no run is this thread's;   the run's end --over--> of any thread

A collective is a run's for certain where the run's hook is being called on that thread, and in the
callbacks of a collective that is the run's.  One that another thread issues on a group of the
hook's belongs to the run that is under way, if there is one only; of several nobody can tell whose
it is, and they are all ``in_doubt``.  One without a future (gloo's reduce-scatter, sends) has no
end that could be seen.

All groups of the process are watched while a traced plain hook is alive.  Nothing here holds a
group, and what torch calls does not raise: a reducer in whose backward pass one raises is broken.
"""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import get_ident
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import distributed

from . import other_collectives
from .backward import ENGINE
from .calls import NOT_YET, Collective, joined
from .groups import GroupInfo, group_info, known_groups

if TYPE_CHECKING:
    from .driver import OpaqueRun

HOOK_ID = 0x686F6F6B74726163
"""From here on are hooktrace's in each group's registry, where the same replaces: "hooktrac"."""

available = hasattr(dist.ProcessGroup, "register_post_hook")
"""Whether this torch's process groups take hooks."""

IN_DOUBT = (
    "the hook issues collectives from a thread of its own while several buckets are in flight, and "
    "nothing tells which bucket they are for"
)

UNSIZED = "a collective of the hook has a tensor without a size, as sparse ones are"

_WORDS = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "REDUCE_SCATTER": "reduce_scatter",
    "ALLTOALL": "all_to_all",
}
"""How torch's names begin, and what hooktrace calls them; others have torch's, in lower case."""

_SILENT = {"RECV", "SPLIT", "NEW_WINDOW"}
"""Operations that send nothing."""


def _kind_of(name: str) -> str:
    # 2.15 tells ALLREDUCE_COALESCED, ALLGATHER_BASE and others apart; 2.14 has the first word only.
    return next((kind for word, kind in _WORDS.items() if name.startswith(word)), name.lower())


_operations: Any = getattr(torch._C._distributed_c10d, "HookOpName", None)
_kinds: dict[Any, str] = {
    operation: _kind_of(name)
    for name, operation in getattr(_operations, "__members__", {}).items()
    if name not in _SILENT
}


def tell_window(group: int, args: Any) -> None:
    """Have a collective noted that may belong to no bucket, if its step is sampled."""
    window, kind = other_collectives.window, _kinds.get(args.name)
    if window is not None and kind is not None:
        window.before(group, kind, args)


class SeenCollective:
    """One collective of a plain hook's call; times are host ns.

    ``op_id``: torch's number of it in its group.  ``arrived_ns``: ``None`` until it has arrived.
    ``has_end``: false where nothing will say when that is.  ``run``: ``None`` once that has ended,
    or the two would hold each other until Python looks for such pairs.
    """

    __slots__ = ("arrived_ns", "collective", "has_end", "issued_ns", "op_id", "run")

    def __init__(self, run: OpaqueRun, collective: Collective, op_id: int, issued_ns: int) -> None:
        self.run: OpaqueRun | None = run
        self.collective = collective
        self.op_id = op_id
        self.issued_ns = issued_ns
        self.arrived_ns: int | None = None
        self.has_end = False

    def __call__(self, _future: object) -> None:
        """Stamp that it has arrived; its future calls this before the hook's own callbacks."""
        run = self.run
        if run is None:
            return
        try:
            self.arrived_ns = run.recorder.clock()
            if run.operation is self.collective:
                run.operation = None
            if run.done == NOT_YET:
                _here[get_ident()] = run
        except Exception as error:  # of a clock
            run.lose_stamps(error)


_here: dict[int, OpaqueRun] = {}
"""By thread: whose hook is called there, or whose collective arrived there last.

Not thread-local: what is thread-local of a backend's thread is gone after each callback.
"""

_callers: set[int] = set()
"""Threads that call hooks: what they issue otherwise is the script's own."""

_under_way: dict[int, OpaqueRun] = {}
"""Runs that have begun and not ended, by ``id``."""

_MOST = 1024
"""Threads and runs that are remembered: of more, some are gone and nobody has said so."""


def begin(run: OpaqueRun) -> None:
    """Take note that a run's hook is called on this thread."""
    if len(_here) > _MOST or len(_under_way) > _MOST:
        _forget()
    thread = get_ident()
    _callers.add(thread)
    _here[thread] = run
    _under_way[id(run)] = run
    run.is_watched = True


def returned() -> None:
    """Take note that the hook that was called on this thread has returned."""
    _here.pop(get_ident(), None)


def over(run: OpaqueRun) -> None:
    """Take note that a run has ended."""
    _under_way.pop(id(run), None)
    for seen in run.seen:
        seen.run = None
    thread = get_ident()
    if _here.get(thread) is run and thread not in _callers:
        del _here[thread]


class Registration:
    """Two functions that torch calls around each collective of a group, with what it tells of it.

    torch's registries are for one thread at a time, and a change while a collective is issued ends
    the process with SIGSEGV: make it where none is being issued, on the thread that issues them.
    It has to be removed before Python ends, or torch ends the process likewise.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        before: Callable[[Any], None],
        after: Callable[[Any], None],
    ) -> None:
        take_off_left()
        self._group = weakref.ref(group)
        self._thread = get_ident()
        self._id = HOOK_ID + next(_numbers)
        _codes.update((before.__code__, after.__code__))
        _alive.add(self)
        private: Any = group
        private.register_pre_hook(self._id, before)
        private.register_post_hook(self._id, after)

    @property
    def is_alive(self) -> bool:
        """Whether the group is there."""
        return self._group() is not None

    def remove(self) -> None:
        """Have torch call them no more; where it may be going through them, later.

        The collector calls this at any time and on any thread, as the drain's.
        """
        _left.append(self)
        if not _may_be_issuing():
            take_off_left()

    def take_off(self) -> None:
        """Have torch call them no more."""
        group: Any = self._group()
        if group is not None:
            group.unregister_pre_hook(self._id)
            group.unregister_post_hook(self._id)
        _alive.discard(self)

    @property
    def is_of_this_thread(self) -> bool:
        """Whether it was made here."""
        return self._thread == get_ident()


def _may_be_issuing() -> bool:
    """Return whether this thread may be within a collective, or in what torch calls around one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        issues = file.startswith(_ISSUERS) and not file.startswith(_LAUNCHERS)
        if issues or code in _codes or code.co_name == ENGINE:
            return True
        frame = frame.f_back
    return False


_ISSUERS = (os.path.dirname(dist.__file__) + os.sep, distributed.__file__)
"""Of torch's own code what issues collectives: torch.distributed, and DDP itself."""
_LAUNCHERS = os.path.join(os.path.dirname(dist.__file__), "elastic", "")
"""What is around whole scripts: ``@record``, ``elastic_launch``."""
_codes: set[CodeType] = set()
"""Of all functions that torch calls."""

_alive: weakref.WeakSet[Registration] = weakref.WeakSet()
_left: list[Registration] = []
"""Those that are to be removed, and do nothing any more."""


def take_off_left() -> None:
    """Remove what could not be before, of this thread: where no collective is being issued here."""
    for one in [one for one in list(_left) if one.is_of_this_thread]:
        with suppress(ValueError):  # the collector has been here meanwhile
            _left.remove(one)
        one.take_off()


def _take_off_all() -> None:
    for one in list(_alive):
        one.take_off()


atexit.register(_take_off_all)


def count_unseen() -> int:
    """Return how many of the process's groups have no hook of hooktrace's."""
    seen = {id(one._group()) for one in _alive}
    return sum(id(group) not in seen for group in list(known_groups()))


_numbers = itertools.count()


class _WatchedGroup:
    """What torch calls around each collective of one group."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = weakref.ref(group)
        self._key = id(group)
        self._infos: dict[str, GroupInfo] = {}
        self.registration = Registration(group, self.before, self.after)

    def before(self, args: Any) -> None:
        """Stamp that a collective is about to be issued."""
        run = _here.get(get_ident())
        try:
            if run is None or run.done != NOT_YET:
                if not _under_way or get_ident() in _callers:
                    if other_collectives.window is not None:  # nobody's, or the script's own
                        tell_window(self._key, args)
                    return
                run = self._only_one_under_way()
            kind = _kinds.get(args.name)
            if run is None or kind is None:
                return
            collective = self._collective(kind, args.input_tensors)
            op_id = args.op_id
        except Exception:
            if run is not None:
                run.in_doubt = UNSIZED
            return
        try:
            run.seen = (*run.seen, SeenCollective(run, collective, op_id, run.recorder.clock()))
            run.operation = collective
        except Exception as error:  # of a clock
            run.lose_stamps(error)

    def after(self, args: Any) -> None:
        """Have the end of a collective stamped."""
        run = _here.get(get_ident())
        window = other_collectives.window
        if window is not None:
            window.after(self._key, args)
        try:
            seen = self._seen(args.op_id, list(_under_way.values()) if run is None else (run,))
            # On a device the host does not know when that is, and a callback would have a stream.
            if seen is not None and seen.run is not None and not seen.run.on_device:
                args.work.get_future().add_done_callback(seen)
                seen.has_end = True
        except Exception:  # it has no future, or none that calls anybody
            return

    def _seen(self, op_id: int, runs: Sequence[OpaqueRun]) -> SeenCollective | None:
        """Return what ``before`` has made of a collective; its run has begun none since, mostly."""
        mine = self._infos.values()
        for run in runs:
            for seen in reversed(run.seen):
                if seen.op_id == op_id and seen.collective.group in mine:
                    return seen
        return None

    def _only_one_under_way(self) -> OpaqueRun | None:
        """Return the one run whose collective it can be; puts all of several in doubt.

        One that uses groups, but not this one, is none of them.
        """
        mine = self._infos.values()
        runs = [
            run
            for run in list(_under_way.values())
            if not run.seen or any(seen.collective.group in mine for seen in run.seen)
        ]
        if len(runs) == 1:
            return runs[0]
        for run in runs:
            run.in_doubt = IN_DOUBT
        return None

    def _collective(self, kind: str, tensors: list[torch.Tensor]) -> Collective:
        if len(tensors) == 1 and tensors[0].is_cpu and "cpu" in self._infos:
            only = tensors[0]
            return _new(Collective, (kind, only.nbytes, only.dtype, self._infos["cpu"]))
        devices = {tensor.device.type for tensor in tensors} - {"cpu"}
        device = devices.pop() if devices else "cpu"
        if device not in self._infos:
            group: Any = self._group()  # it is there: it calls this
            self._infos[device] = group_info(group, device)
        dtypes = {tensor.dtype for tensor in tensors}
        dtype: object = dtypes.pop() if len(dtypes) == 1 else joined(dtypes)
        return Collective(kind, sum(t.nbytes for t in tensors), dtype, self._infos[device])


_new = tuple.__new__
"""Makes a named tuple in half the time of its own constructor."""

watched: dict[int, _WatchedGroup] = {}
"""By ``id`` of the group."""

_owners: set[int] = set()
"""By ``id``: those that are alive."""
_known = 0


def watch(owner: object) -> None:
    """Watch all groups of this process as long as ``owner`` is alive; nothing on older torch.

    torch's registries are for one thread at a time: call it where no collective is being issued.
    """
    if available:
        if id(owner) not in _owners:
            _owners.add(id(owner))
            # At the exit too: torch lets go of its groups, and of these functions, when Python is
            # gone, which ends the process with SIGSEGV.
            weakref.finalize(owner, _leave, id(owner))
        _watch_known()


def watch_new() -> None:
    """Watch groups that were made since, and no more those that nobody wants to be watched."""
    if _left:
        take_off_left()
    if _owners and len(known_groups()) != _known:
        _watch_known()


def _watch_known() -> None:
    global _known  # noqa: PLW0603  # compared in each step
    for key in [key for key, one in watched.items() if not one.registration.is_alive]:
        del watched[key]
    groups = list(known_groups())
    _known = len(groups)
    for group in groups:
        if id(group) not in watched:
            watched[id(group)] = _WatchedGroup(group)


def _leave(owner: int) -> None:
    _owners.discard(owner)
    if not _owners:
        for key, one in list(watched.items()):
            del watched[key]
            one.registration.remove()
        _forget()


def _forget() -> None:
    _here.clear()
    _under_way.clear()
    _callers.clear()


os.register_at_fork(after_in_child=_forget)
