"""What torch's process groups tell of each collective, and whose it is (torch >= 2.14).

    group --before--> a model without a hook, if it is a bucket of that   (tracing/hookless.py)
                      the run of this thread: kind, bytes, when it was issued --> run.seen
                      the window of a sampled step, if it is nobody's   (probes/other_sampler.py)
          --after---> its future --> when it arrived

A collective is a run's for certain where the run's hook is being called on that thread, and in the
callbacks of a collective that is the run's.  What another thread issues on a group of the hook's
is the run's that is under way; where there are several, all are ``in_doubt``.  One without a future
(gloo's reduce-scatter, sends) has no end that could be seen.

torch's registries have no lock: a change while a collective is issued ends the process with
SIGSEGV.  So a group gets its two functions once, where none is being issued, and keeps them until
it goes, or Python ends.  Nothing here holds a group, and what torch calls does not raise: a reducer
in whose backward pass one raises is broken.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .calls import NOT_YET, Collective, joined, new_tuple
from .groups import GroupInfo, group_info, known_groups

if TYPE_CHECKING:
    from ..probes.other_sampler import OtherCall, Window
    from ..tracing.hookless import HooklessModel, OwnAllReduce
    from .driver import PlainRun

HOOK_ID = 0x686F6F6B74726163
"""hooktrace's in each group's registries, where the same one replaces: "hooktrac"."""

available = hasattr(dist.ProcessGroup, "register_post_hook")
"""Whether this torch's process groups take hooks."""

IN_DOUBT = (
    "the hook issues collectives from a thread of its own, and nothing tells which bucket they are "
    "for"
)

UNSIZED = "a collective of the hook has a tensor without a size, as sparse ones are"

_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def _kind_of(name: str) -> str:
    """Return the kind for torch's name: ``ALLREDUCE``, in 2.15 also ``ALLREDUCE_COALESCED``, ..."""
    bare = name.lower().replace("_", "")
    return next((k for k in _KINDS if bare.startswith(k.replace("_", ""))), name.lower())


_operations: Any = getattr(torch._C._distributed_c10d, "HookOpName", None)
ALL_REDUCE = getattr(_operations, "ALLREDUCE", None)
_kinds: dict[Any, str] = {
    operation: _kind_of(name)
    for name, operation in getattr(_operations, "__members__", {}).items()
    if name not in {"RECV", "SPLIT", "NEW_WINDOW"}  # which send nothing
}


class SeenCollective:
    """One collective of a plain hook's call; times are host ns.

    ``is_issued``: false where issuing it has raised.  ``has_end``: false where nothing will say
    when it arrives.  ``run``: ``None`` once that has ended, or the two would hold each other.
    """

    __slots__ = ("arrived_ns", "collective", "has_end", "is_issued", "issued_ns", "run")

    def __init__(self, run: PlainRun, collective: Collective, issued_ns: int) -> None:
        self.run: PlainRun | None = run
        self.collective = collective
        self.issued_ns = issued_ns
        self.arrived_ns = NOT_YET
        self.is_issued = False
        # On a device the host does not know when it ends, and a callback would have a stream.
        self.has_end = not (run.on_device or run.leave_to_pass_end())

    def see(self, args: Any) -> None:
        """Take note that it was issued."""
        self.is_issued = True
        if self.has_end and call_when_done(args.work, self) is not None:
            self.has_end = False

    def __call__(self, _future: object) -> None:
        """Stamp that it has arrived; its future calls this before the hook's own callbacks."""
        run = self.run
        if run is None:
            return
        try:
            self.arrived_ns = run.clock()
            if run.operation is self.collective:
                run.operation = None
            if run.done == NOT_YET:
                _here[get_ident()] = run
        except Exception as error:  # of a clock
            run.lose_stamps(error)


_here: dict[int, PlainRun] = {}
"""By thread: whose hook is called there, or whose collective arrived there last.  No
``threading.local``: on a backend's thread that is new in each callback."""

_callers: set[int] = set()
"""Threads that call hooks: what they issue otherwise is the script's own."""

_under_way: dict[int, PlainRun] = {}
"""Runs that have begun and not ended, by ``id``."""

_MOST = 1024
"""Threads, runs and collectives that are kept: of more, some are gone."""


def begin(run: PlainRun) -> None:
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


def over(run: PlainRun) -> None:
    """Take note that a run has ended."""
    _under_way.pop(id(run), None)
    if run.seen:
        run.seen = tuple(one for one in run.seen if one.is_issued)
        for seen in run.seen:
            seen.run = None
    thread = get_ident()
    if _here.get(thread) is run and thread not in _callers:
        del _here[thread]


class GroupHooks:
    """What torch calls around each collective of one group; ``models``: those without a hook."""

    def __init__(self, group: Any) -> None:
        self._group = weakref.ref(group)
        self._infos: dict[str, GroupInfo] = {}
        self._issuing: dict[int, OwnAllReduce | SeenCollective | OtherCall] = {}
        """By torch's number in the group: what sees a collective, once it is issued."""
        self.models: tuple[HooklessModel, ...] = ()
        group.register_pre_hook(HOOK_ID, self.before)
        group.register_post_hook(HOOK_ID, self.after)

    def before(self, args: Any) -> None:
        """Take note that a collective is about to be issued."""
        if len(self._issuing) > _MOST:  # those whose issuing raised
            self._issuing.clear()
        for model in self.models:
            call = model.before(args)
            if call is not None:
                self._issuing[args.op_id] = call
                return
        kind = _kinds.get(args.name)
        if kind is None:
            return
        thread = get_ident()
        run = _here.get(thread)
        runs = [run] if run is not None and run.done == NOT_YET else []
        if _under_way and thread not in _callers:
            runs = runs or self._runs_that_may_issue()
            for one in runs:  # a callback notes which call's collective arrived on which thread
                one.slot.model.all_timed = True
        if len(runs) == 1:
            self._see(runs[0], kind, args)
        elif runs:
            for one in runs:
                one.in_doubt = IN_DOUBT
        elif (opened := window) is not None:
            other = opened.before(kind, args)
            if other is not None:
                self._issuing[args.op_id] = other

    def _see(self, run: PlainRun, kind: str, args: Any) -> None:
        try:
            collective = self._collective(kind, args.input_tensors)
        except Exception:
            run.in_doubt = UNSIZED
            return
        try:
            seen = SeenCollective(run, collective, run.clock())
        except Exception as error:  # of a clock
            run.lose_stamps(error)
            return
        run.seen = (*run.seen, seen)
        run.operation = collective
        self._issuing[args.op_id] = seen

    def after(self, args: Any) -> None:
        """Have the end of a collective stamped."""
        issued = self._issuing.pop(args.op_id, None)
        if issued is not None:
            issued.see(args)

    def _runs_that_may_issue(self) -> list[PlainRun]:
        """Return those under way, but for those that use other groups alone."""
        mine = self._infos.values()
        return [
            run
            for run in list(_under_way.values())
            if not run.seen or any(seen.collective.group in mine for seen in run.seen)
        ]

    def _collective(self, kind: str, tensors: list[torch.Tensor]) -> Collective:
        if len(tensors) == 1 and tensors[0].is_cpu and "cpu" in self._infos:
            only = tensors[0]
            return new_tuple(Collective, (kind, only.nbytes, only.dtype, self._infos["cpu"]))
        devices = {tensor.device.type for tensor in tensors} - {"cpu"}
        device = devices.pop() if devices else "cpu"
        if device not in self._infos:
            group: Any = self._group()  # it is there: it calls this
            self._infos[device] = group_info(group, device)
        dtypes = {tensor.dtype for tensor in tensors}
        dtype: object = dtypes.pop() if len(dtypes) == 1 else joined(*dtypes)
        return Collective(kind, sum(t.nbytes for t in tensors), dtype, self._infos[device])


_add_callback: Any = torch._C.Future.add_done_callback
"""That of ``torch.futures.Future`` is a function of Python's, which calls this."""


def call_when_done(work: Any, called: Callable[[Any], object]) -> Exception | None:
    """Have something called once torch's ``work`` is done; returns why nothing will say that."""
    try:
        _add_callback(work.get_future(), called)
    except Exception as error:  # it has no future, or none that calls anybody
        return error
    return None


_hooks: weakref.WeakKeyDictionary[Any, GroupHooks] = weakref.WeakKeyDictionary()
is_watching = False
"""Whether any group has hooktrace's functions."""


def hooks_of(group: dist.ProcessGroup) -> GroupHooks:
    """Return a group's; call it where no collective is being issued."""
    global is_watching  # noqa: PLW0603  # asked for in each call of a plain hook
    found = _hooks.get(group)
    if found is None:
        found = _hooks[group] = GroupHooks(group)
        is_watching = True
    return found


def watch_groups() -> None:
    """Watch all groups of this process, those too that were made since; nothing on older torch.

    Call it where no collective is being issued.
    """
    if available:
        for group in list(known_groups()):
            hooks_of(group)


def count_unseen() -> int:
    """Return how many of the process's groups have no hook of hooktrace's."""
    return sum(group not in _hooks for group in list(known_groups()))


@atexit.register
def _take_off_all() -> None:
    """Have torch call them no more: where Python ends, torch would end the process."""
    for group in list(_hooks):
        group.unregister_pre_hook(HOOK_ID)
        group.unregister_post_hook(HOOK_ID)


window: Window | None = None
"""The one that is open: of this process, whichever model opened it last."""


def _forget() -> None:
    _here.clear()
    _under_way.clear()
    _callers.clear()


def _begin_anew() -> None:
    """Know nothing in a forked child of what its parent has under way."""
    global window  # noqa: PLW0603
    window = None
    _forget()


os.register_at_fork(after_in_child=_begin_anew)
