"""Collectives that belong to no bucket of a traced hook, in sampled steps (torch >= 2.14).

    sampled step --begin--> Window <--before, after-- hooks of process groups, of what they do not
    its next one --end--> ring --> OtherCollectives       know as a bucket's

In between there is no window, and a group's hook asks for one and no more.  One process has one
window at a time, whichever model opened it: what is in it is of the process, not of the model.

What hooktrace's own hooks issue is a bucket's too.  It is known by hooktrace's functions on the
stack; what DDP's reducer sends, by the engine that has called it.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from threading import get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed.algorithms.join
import torch.nn.parallel.distributed
from msgspec.structs import replace

from ..records.other import OtherCollective, OtherCollectives
from .backward import engine_code
from .calls import Clock
from .ring import Loss

if TYPE_CHECKING:
    from ..tracing.assembler import Assembler
    from ..tracing.tracer import Tracer

MOST = 128
"""Collectives of a window that are listed; more are counted."""

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_OF_HOOKS = tuple(_OURS + name + os.sep for name in ("staging", "tracing", "probes", "fsdp"))
_MODULES = os.path.dirname(torch.nn.modules.__file__) + os.sep
_OF_DDP = (torch.nn.parallel.distributed.__file__, torch.distributed.algorithms.join.__file__)


class OtherCall:
    """One collective, until its window becomes a record; called when its future is complete.

    ``has_end``: whether anybody tells when it ends.
    """

    __slots__ = ("_clock", "_done_ns", "_known", "has_end")

    def __init__(self, known: OtherCollective, tensors: list[torch.Tensor], clock: Clock) -> None:
        self._known, self._clock = known, clock
        self._done_ns: int | None = None
        # On a device the host does not know when it ends, and a callback would have a stream.
        is_on_cpu = bool(tensors) or not torch.accelerator.is_available()
        self.has_end = is_on_cpu and all(one.is_cpu for one in tensors)

    def __call__(self, _future: object) -> None:
        """Stamp that it has arrived."""
        with suppress(Exception):  # of a clock: when it ended is not known
            self._done_ns = self._clock()

    def has_no_future(self, _error: Exception) -> None:
        """Leave it: when it ends is not known."""

    def record(self) -> OtherCollective:
        """Return what is known of it."""
        return replace(self._known, done_ns=self._done_ns)


class Window:
    """What is seen of one step; ``owner``: who opened it, ``tracer``: whose it is."""

    def __init__(self, owner: object, tracer: Tracer, model: str, step: int, time_ns: int) -> None:
        self.owner = owner
        self.tracer = tracer
        self.refused: list[object] = []
        """Who wanted one meanwhile: if one does again, this one's step does not end."""
        self._of: dict[str, Any] = {"model": model, "step": step, "time_ns": time_ns}
        self._calls: list[OtherCall] = []
        self._more = self._more_bytes = self._ddp_bytes = 0

    def before(self, name: str, args: Any) -> OtherCall | None:
        """Take note of a collective that is about to be issued, if it is no bucket's.

        Called by what torch calls; raises nothing.
        """
        try:
            # Below what torch calls; none on a thread of the engine's own.
            issuer = _issuer(sys._getframe(1).f_back)
            return None if issuer is None else self._take(name, args.input_tensors, *issuer)
        except Exception as error:
            self.tracer.push(Loss.of_stamps(error))
            return None

    def _take(
        self, name: str, tensors: list[torch.Tensor], where: str, of_ddp: bool
    ) -> OtherCall | None:
        size = _size_of(tensors)
        self._ddp_bytes += (size or 0) * of_ddp
        if len(self._calls) >= MOST:
            self._more += not of_ddp
            self._more_bytes += (size or 0) * (not of_ddp)
            return None
        known = OtherCollective(
            name=name, wire_bytes=size, issued_ns=self.tracer.clock(), thread=_thread_name(),
            where=where, of_ddp=of_ddp,
        )  # fmt: skip
        self._calls.append(call := OtherCall(known, tensors, self.tracer.clock))
        return call

    def end(self, until_ns: int, unseen_groups: int) -> None:
        """Hand over what was seen: its step ended with the next one's first bucket."""
        self._of |= {"until_ns": until_ns, "unseen_groups": unseen_groups}
        self.tracer.push(self)

    def assemble(self, into: Assembler) -> None:
        """Become a record."""
        made = OtherCollectives(
            collectives=tuple([call.record() for call in self._calls]), more=self._more,
            more_bytes=self._more_bytes, ddp_bytes=self._ddp_bytes, **self._of,
        )  # fmt: skip
        into.add(made)


window: Window | None = None
"""The one that is open."""


def begin(owner: object, tracer: Tracer, model: str, step: int, time_ns: int) -> bool:
    """Open one for a step, unless another model's is open."""
    global window  # noqa: PLW0603  # asked for at each collective
    if window is not None and owner not in window.refused:
        window.refused.append(owner)
        return False
    window = Window(owner, tracer, model, step, time_ns)
    return True


def end(owner: object, until_ns: int, unseen_groups: int) -> None:
    """Close the one that ``owner`` opened, if it is open."""
    global window  # noqa: PLW0603
    ended = window
    if ended is not None and ended.owner is owner:
        window = None
        ended.end(until_ns, unseen_groups)


def forget(of: object = None) -> None:
    """Let go of one whose step will not end: of a tracer, of an owner, or any."""
    global window  # noqa: PLW0603
    it = window
    if it is not None and of in (None, it.tracer, it.owner):
        window = None


os.register_at_fork(after_in_child=forget)


def _issuer(frame: FrameType | None) -> tuple[str, bool] | None:
    """Return which line issued a collective, and whether DDP did; ``None`` of a bucket's.

    ``frame``: what torch's function was called from.
    """
    if frame is None or frame.f_code is engine_code:
        return None
    where, of_ddp, in_module = "", False, False
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_OF_HOOKS):
            return None
        if not where:
            in_module |= file.startswith(_MODULES)
            of_ddp |= file in _OF_DDP and not in_module
            if not file.startswith((_TORCH, _OURS)):
                where = f"{os.path.basename(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return where, of_ddp


def _size_of(tensors: list[torch.Tensor]) -> int | None:
    try:
        return sum(one.nbytes for one in tensors)
    except RuntimeError:  # of a sparse one
        return None


def _thread_name() -> str:
    # ``current_thread`` would make an object for a thread that is not Python's, and keep it.
    known: Any = getattr(threading, "_active", {}).get(get_ident())
    return f"thread {threading.get_native_id()}" if known is None else str(known.name)
