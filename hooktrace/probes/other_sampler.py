"""The process's collectives that are no bucket's, in sampled steps of a model (torch >= 2.14).

first bucket of a step that is due --> Window --that of the next one--> OtherCollectives --> ring
a group's functions (staging/group_hooks.py) --before--> Window, if it is open
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed.algorithms.join
import torch.nn.parallel.distributed
from msgspec.structs import replace

from ..records.other import OtherCollective, OtherCollectives
from ..staging import group_hooks
from ..staging.backward import engine_code
from ..staging.ring import Loss
from .schedule import FIRST, Schedule
from .step_sampler import CallStart, Part

if TYPE_CHECKING:
    from types import FrameType

    from ..staging.calls import Clock
    from ..tracing.assembler import Assembler
    from ..tracing.tracer import Tracer

MOST_LISTED = 128
"""Collectives of a window that are listed; more are counted."""

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_OF_HOOKS = tuple(_OURS + name + os.sep for name in ("staging", "tracing", "probes", "fsdp"))
_MODULES = os.path.dirname(torch.nn.modules.__file__) + os.sep
_OF_DDP = (torch.nn.parallel.distributed.__file__, torch.distributed.algorithms.join.__file__)


class OtherCall:
    """One collective of a window; called when its future is complete."""

    def __init__(self, known: OtherCollective, clock: Clock) -> None:
        self.known, self._clock = known, clock

    def see(self, args: Any) -> None:
        """Have its end stamped."""
        group_hooks.call_when_done(args.work, self)

    def __call__(self, _future: object) -> None:
        """Stamp that it has arrived."""
        with suppress(Exception):  # of a clock: when it ended is not known
            self.known = replace(self.known, done_ns=self._clock())


class Window:
    """The collectives that are no bucket's, in a sampled step; ``owner``: who opened it."""

    def __init__(self, owner: object, tracer: Tracer, model: str, step: int, time_ns: int) -> None:
        self.owner, self.tracer = owner, tracer
        self._of: dict[str, Any] = {"model": model, "step": step, "time_ns": time_ns}
        self._calls: list[OtherCall] = []
        self._more = self._more_bytes = self._ddp_bytes = 0

    def before(self, name: str, args: Any) -> OtherCall | None:
        """Take note of a collective that is about to be issued, if it is no bucket's.

        A bucket's is known by hooktrace's functions on the stack, or by the engine that has called.
        Returns what is to be told of its end; ``None`` where the host does not see that.
        """
        try:
            # Below what torch calls; none on a thread of the engine's own.
            issuer = _issuer(sys._getframe(1).f_back)
            return None if issuer is None else self._take(name, args.input_tensors, *issuer)
        except Exception as error:
            self.tracer.push(Loss.of_stamps(error))
            return None

    def _take(self, name: str, tensors: list[Any], where: str, of_ddp: bool) -> OtherCall | None:
        size: int | None = None
        with suppress(RuntimeError):  # of a sparse one
            size = sum(one.nbytes for one in tensors)
        self._ddp_bytes += (size or 0) * of_ddp
        if len(self._calls) >= MOST_LISTED:
            self._more += not of_ddp
            self._more_bytes += (size or 0) * (not of_ddp)
            return None
        known = OtherCollective(
            name=name, wire_bytes=size, issued_ns=self.tracer.clock(), thread=_thread_name(),
            where=where, of_ddp=of_ddp,
        )  # fmt: skip
        self._calls.append(call := OtherCall(known, self.tracer.clock))
        # On a device the host does not know when it ends, and a callback would have a stream.
        is_on_cpu = bool(tensors) or not torch.accelerator.is_available()
        return call if is_on_cpu and all(one.is_cpu for one in tensors) else None

    def end(self, until_ns: int) -> None:
        """Hand over what was seen: another step, of whichever model, has its first bucket."""
        self._of |= {"until_ns": until_ns, "unseen_groups": group_hooks.count_unseen()}
        self.tracer.push(self)

    def assemble(self, into: Assembler) -> None:
        """Become a record."""
        into.add(OtherCollectives(
            collectives=tuple([call.known for call in self._calls]), more=self._more,
            more_bytes=self._more_bytes, ddp_bytes=self._ddp_bytes, **self._of,
        ))  # fmt: skip


def close_window(of: object, until_ns: int | None = None) -> None:
    """Close the one of a tracer or owner, if it is open; ``None``: its step will not end."""
    closed = group_hooks.window
    if closed is not None and of in (closed.tracer, closed.owner):
        group_hooks.window = None
        if until_ns is not None:
            closed.end(until_ns)


def _issuer(frame: FrameType | None) -> tuple[str, bool] | None:
    """Return which line issued a collective, and whether DDP did; ``None`` of a bucket's."""
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


def _thread_name() -> str:
    # ``current_thread`` would make an object for a thread that is not Python's, and keep it.
    known: Any = getattr(threading, "_active", {}).get(threading.get_ident())
    return f"thread {threading.get_native_id()}" if known is None else str(known.name)


class OtherSampler(Part):
    """Step 2 of a model, and each ``every``-th one."""

    def __init__(self, every: int) -> None:
        self._schedule = Schedule(0, every, burst=FIRST)
        self.next_step = FIRST.start

    def enter(self, start: CallStart, sink: Tracer) -> bool:
        """Take note of the first bucket of a step at or after ``next_step``."""
        self.at(start.slot.model.name, start.step, start.ready, sink)
        return False

    def at(self, model: str, step: int, ready_ns: int, tracer: Tracer) -> None:
        """Take note of the first bucket of a step, without the rest of its call."""
        close_window(self, ready_ns)
        self.next_step = self._schedule.next_after(step)
        if self._schedule.turn(step) is not None:
            opened = Window(self, tracer, model, step, ready_ns)
            before, group_hooks.window = group_hooks.window, opened
            if before is not None:  # another model's
                before.end(ready_ns)
            self.next_step = step + 1
