"""The stamps of one hook call: the only thing the training thread and its callbacks write.

    traced hook: a BucketCall, of StepCalls, which the ring has from their first call on
    driver: issued / arrived / finished or failed;   traced hook: launched;   engine: backward_over

A call is written by the training thread and then by one callback thread, never by both at once.
Its end, ``done``, is written last, or, where hooktrace is to look at the result, that it did: the
drain makes records of no call before, and it is not touched after, but for two stamps: ``launched``
is ``None`` while the hook has not returned, and ``backward_end`` is ``NOT_YET`` while backward goes
on.

No stamp raises: what fails in one (a clock, a device event, an operation of the user's own) leaves
the call ``unknown``, which the drain counts, and the hook goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from .backward import at_pass_end, waits_later
from .devices import EventPool, refuse_captured_stream

if TYPE_CHECKING:
    import torch

    from ..tracing.assembler import Assembler
    from .collectives import Operation
    from .group_hooks import SeenCollective
    from .groups import GroupInfo
    from .slots import BucketSlot


Clock = Callable[[], int]
"""Returns integer nanoseconds that never go back."""


def clock_anchor(clock: Clock) -> tuple[int, int]:
    """Return readings of a clock and of the wall clock (ns since the Unix epoch) at one moment.

    The shortest of some readings counts: a thread may lose its core between two clocks.
    """
    windows = [(clock(), time.time_ns(), clock()) for _ in range(16)]
    before, wall, after = min(windows, key=lambda window: window[2] - window[0])
    return (before + after) // 2, wall


NOT_YET = -1
"""Of what has not ended: the ``done`` of a call, the ``backward_end`` of one in a pass."""

END_UNKNOWN = -2
"""The ``done`` of a call that has ended, nobody knows when; the ``backward_end`` of one whose pass
raised, or whose model waits somewhere else."""


class Collective(NamedTuple):
    """What an operation says of itself; ``wire_bytes``: this rank's payload, ``dtype``: torch's."""

    kind: str
    wire_bytes: int
    dtype: object
    group: GroupInfo

    def describe(self) -> Collective:
        """Return itself: of what torch runs as it is, all is known before."""
        return self


class Round(msgspec.Struct, gc=False):
    """One collective of a call; ``arrived_ns`` is ``NOT_YET`` where the call failed before.

    In the drain: ``freed_ns`` is when the worker that executed it could take the next one, and
    ``start_ns`` when its backend began it, ``None`` where that is not known.
    """

    collective: Collective
    issued_ns: int
    arrived_ns: int
    freed_ns: int = NOT_YET
    start_ns: int | None = None


def joined(*names: object) -> str:
    """Return names, of dtypes say, as one: ``float16+float32``."""
    parts = "+".join(str(name).removeprefix("torch.") for name in names).split("+")
    return "+".join(sorted(set(parts)))


def one_after_another(rounds: Iterable[Round | SeenCollective], done_ns: int) -> tuple[Round, ...]:
    """Return rounds of which none begins before the one before it has ended.

    Those that are under way at once are one, with the bytes of all of them.  None ends later than
    ``done_ns``, the end of the call, unless that is ``NOT_YET``.  ``rounds``: in order of issue.
    """
    apart: list[Round] = []
    for one in rounds:
        more, end = one.collective, one.arrived_ns
        if done_ns != NOT_YET and (end == NOT_YET or end > done_ns):
            end = done_ns
        last = apart[-1] if apart else None
        if last is None or one.issued_ns >= last.arrived_ns:
            apart.append(Round(more, one.issued_ns, end))
            continue
        what = last.collective
        dtype = what.dtype if what.dtype == more.dtype else joined(what.dtype, more.dtype)
        sent = what.wire_bytes + more.wire_bytes
        last.collective = Collective(joined(what.kind, more.kind), sent, dtype, what.group)
        last.arrived_ns = end if end == NOT_YET else max(last.arrived_ns, end)
    return tuple(apart)


class BucketCall:
    """One call of a hook for one bucket, being stamped; all times are host ns.

    ``ready``: DDP called the hook.  ``launched``: the hook returned.  ``done``: the result was
    there.  ``operation``: what the call waits for now; whoever asks must not keep it.
    ``collective``, ``issued_at``, ``arrived_at``: of its last collective that has arrived, and
    ``earlier``: those before; together they are its ``rounds``.  ``clock``: ``None`` of a run that
    nobody records.  ``on_device``: each stamp is an event too, of ``pool``.

    What each call sets has a slot.  What few calls set is a class attribute with its default; a
    call that sets one has it in its ``__dict__``, which is made then.
    """

    __slots__ = (
        *("__dict__", "arrived_at", "clock", "collective", "done", "issued_at", "launched"),
        *("on_device", "operation", "ready", "slot", "step"),
    )

    operation: Operation | Collective | None
    collective: Collective | None
    issued_at: int
    arrived_at: int
    launched: int | None

    bounded = False  # it ended by ``done``, nobody knows when
    arrived_by: int | None = None  # when its pass ended, if that is how it is known
    staged = True  # its collectives are seen; a plain hook's are not
    join_dummy = False  # made under ``join()``, for a rank that has no data left
    hook_called = True  # false while hooktrace looks at its bucket before
    earlier: tuple[Round, ...] = ()
    entered: int | None = None  # the hook was called; hooktrace looked at the bucket before
    started: int | None = None  # a call that had to wait for its turn got it
    held = False  # hooktrace still is to look at its result
    released: int | None = None  # DDP was given the result; hooktrace looked at it first
    backward_end: int | None = None  # of the last bucket; ``None``: no pass is known
    error: str | None = None  # what the hook raised in ``error_stage``
    error_stage = ""
    unknown: str | None = None  # why a stamp failed, if one did
    # On a device.
    pool: EventPool
    events: list[torch.Event] | None = None  # of ready, the rounds' stamps, and done
    device_over = False  # nobody reads the events any more; others may record them again
    around_backward: tuple[torch.Event, ...] = ()  # the last hook has returned, backward has ended
    # Of a sharded model's unit.
    bare = False  # all of the call is one collective, as torch runs it
    order = 0  # how many collectives of its step began before
    exposed: int | None = None  # on a CPU: how long training waited for it, ns
    stream: Hashable = None  # on a device where waits are watched: the stream that it began on
    before_wait: tuple[torch.Event, ...] | None = None
    """Where the computing stream of a device came to wait for it; empty of a call that this stream
    ran itself, ``None`` where it is not known."""

    def __init__(
        self, slot: BucketSlot, step: int, ready: int, clock: Clock, join_dummy: bool = False
    ) -> None:
        self.slot = slot
        self.step = step
        self.ready = ready
        self.launched = None
        self.done = NOT_YET
        self.clock = clock
        self.on_device = False
        self.operation = self.collective = None
        if join_dummy:
            self.join_dummy = True

    def begin_on_device(self, pool: EventPool) -> None:
        """Record the first event; raises ``RuntimeError`` on a stream that is being captured."""
        refuse_captured_stream(self.slot.device)
        self.on_device, self.pool, self.events = True, pool, []
        self.record()

    def record(self) -> None:
        """Record an event; once one stamp has failed, nobody knows which event is whose."""
        if self.unknown is None and not self.device_over and self.events is not None:
            try:
                self.events.append(self.pool.record(self.slot.device))
            except Exception as error:
                self.lose_stamps(error)

    def record_around_backward(self) -> None:
        """Record on its device where backward may go on after the last call, or has ended."""
        if not self.device_over:
            with suppress(Exception):  # the device does not know then how much backward hid
                event = self.pool.record(self.slot.device)
                self.around_backward = (*self.around_backward, event)

    @property
    def rounds(self) -> tuple[Round, ...]:
        """Its collectives so far."""
        last = self.collective
        if last is None:
            return self.earlier
        return (*self.earlier, Round(last, self.issued_at, self.arrived_at))

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is stamped, but for what the module's docstring says."""
        return self.done != NOT_YET and not self.held

    @property
    def in_flight(self) -> bool:
        """Whether somebody may wait for it."""
        return not self.has_ended

    @property
    def has_device_times(self) -> bool:
        """Whether events say when the call was where, once the device has passed them."""
        return bool(self.events) and self.unknown is None

    def watch_backward(self) -> None:
        """Have it stamped when DDP begins to wait, at the end of the backward pass as a rule."""
        self.backward_end = NOT_YET
        if waits_later(self.slot.model.ddp):
            self.backward_end = END_UNKNOWN
        elif not at_pass_end(self.backward_over):
            self.backward_end = None

    def backward_over(self, failed: bool) -> None:
        """Stamp that the backward pass has nothing left to compute, or that there is no end."""
        if self.backward_end != NOT_YET:
            return
        end = END_UNKNOWN
        if not failed:
            if self.on_device:
                self.record_around_backward()
            with suppress(Exception):  # of a clock: the call's own stamps were read by then
                end = self.clock()
        self.backward_end = end

    def release(self) -> None:
        """Stamp that DDP is given the result now, if it is there: it was looked at before."""
        if self.done != NOT_YET:
            self.stamp("released")
        self.held = False

    def stamp(self, name: str) -> None:
        """Stamp that now is what an attribute is the time of."""
        try:
            setattr(self, name, self.clock())
        except Exception as error:
            self.lose_stamps(error)

    def issued(self, operation: Operation | Collective) -> None:
        """Stamp that a collective is about to be issued."""
        if self.staged:
            if self.on_device:
                self.record()
            try:
                if self.collective is not None:
                    self.collective, self.earlier = None, self.rounds
                self.issued_at = self.clock()
                self.operation = operation
            except Exception as error:
                self.lose_stamps(error)

    def arrived(self, *, failed: bool = False) -> None:
        """Stamp that the collective's result is there, or that there will be none."""
        if self.on_device and self.staged and not failed:
            self.record()
        operation = self.operation
        if operation is not None:
            try:
                self.arrived_at = NOT_YET if failed else self.clock()
                self.operation = None
                known = operation.describe()
                if known is None:
                    self.see_from_outside()
                elif self.staged:
                    self.collective = known
            except Exception as error:
                self.lose_stamps(error)

    def over(self) -> None:
        """Stamp that a unit's call is over, and training has waited for it.

        Its step has the call already, and sets the rest in the drain.  On a device what is waited
        for is seen later (``UnitWaits``).
        """
        if self.on_device:
            self.arrived()
        self.finished()
        if self.on_device:
            self.launched = self.done

    def finished(self) -> None:
        """Stamp that the result is there."""
        if self.on_device:
            self.record()
        try:
            self.done = self.clock()
        except Exception as error:
            self.lose_end(error)

    def failed(self, stage: str, error: BaseException) -> None:
        """Stamp that the hook raised in ``stage``; takes the place of ``finished``."""
        self.error_stage = stage
        self.error = f"{type(error).__name__}: {error}"
        self.arrived(failed=True)
        self.finished()

    def lose_stamps(self, error: BaseException) -> None:
        """Give up the stages of this call, and its times on a device, and say why."""
        self.see_from_outside()
        if self.unknown is None:
            self.unknown = f"{type(error).__name__}: {error}"

    def lose_end(self, error: BaseException) -> None:
        """Take note that it has ended, and nobody knows when."""
        self.lose_stamps(error)
        self.done = END_UNKNOWN

    def see_from_outside(self) -> None:
        """Go on as for a plain hook: call, return and completion are all that is seen."""
        self.operation = self.collective = None
        self.staged = False
        self.earlier = ()


def events_of(call: BucketCall) -> tuple[torch.Event, ...]:
    """Return all events of a call."""
    return (*(call.events or ()), *call.around_backward, *(call.before_wait or ()))


def give_back(calls: Iterable[BucketCall]) -> None:
    """Give the events of calls, which nobody reads any more, to the pools that they are from.

    The device need not have passed them.
    """
    used: dict[int, tuple[EventPool, torch.device, torch.Event]] = {}  # calls may share one
    for call in calls:
        if call.events and not call.device_over:
            call.device_over = True
            for event in events_of(call):
                used[id(event)] = call.pool, call.slot.device, event
    for pool, device, event in used.values():
        pool.give(device, event)


class StepCalls(list[BucketCall]):
    """The calls of one step, in the order of their beginning: one entry of the ring.

    DDP's is there from its first call on, and the drain waits for the others; that of a sharded
    model comes when it ``is_over``.  ``number``: which step of DDP's.  ``size``: how many calls it
    will have, as far as is known.  ``complete``: of one that is over, backward came to its end, and
    all calls are here.  ``rebuild``: of its buckets.  ``is_lost``: the ring had no room for it.
    ``untimed``: its calls are looked at when their pass ends, and not timed (``pass_end.py``).
    ``watched_pass``: torch's number of the last pass whose end is heard of for that, if one is.
    """

    __slots__ = (
        *("complete", "is_lost", "is_over", "number", "rebuild", "size", "untimed"),
        "watched_pass",
    )

    def __init__(self, number: int, size: int = 1) -> None:
        super().__init__()
        self.number = number
        self.size = size
        self.is_over = self.complete = self.is_lost = self.untimed = False
        self.watched_pass: int | None = None
        self.rebuild = 0

    def end(self, rebuild: int, *, complete: bool) -> None:
        """Take it that no more calls come."""
        self.is_over, self.complete, self.rebuild = True, complete, rebuild
        self.size = len(self)

    @property
    def has_last(self) -> bool:
        """Whether all calls of a step of DDP's have begun."""
        # The last bucket of a static graph's first pass is known for it later.
        return bool(self) and self[-1].slot.is_last and len(self) == self[-1].slot.index + 1

    def assemble(self, into: Assembler) -> None:
        """Become a step's records."""
        for call in self if self.is_over else ():
            has_failed = call.error is not None or call.unknown is not None
            # On a CPU ``over`` has stamped ``done`` alone: the rest follows from it.
            if call.launched is None and call.done != NOT_YET and not has_failed:
                call.launched = call.arrived_at = call.done
                call.exposed = call.done - call.ready
                call.collective = call.slot.collective if call.bare else None
                call.operation = None
        into.add_step(self)

    def let_go(self) -> None:
        """Give the calls' events back to their pool: nobody reads them any more."""
        self.is_lost = True
        give_back(self)


new_tuple = tuple.__new__
"""Makes a named tuple in half the time of its own constructor."""
