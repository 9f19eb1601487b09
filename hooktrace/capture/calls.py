"""The stamps of one hook call: the only thing the training thread and its callbacks write.

    wrapper: BucketCall(...)   driver: issued / arrived / finished or failed   wrapper: launched
                                                      |
                                                      +--> pushed to the ring

A call is written by the training thread and then by one callback thread, never by both at once.
After it was pushed it is not touched, but for one stamp: a result can be there before the hook has
returned, and whoever reads ``launched`` must expect ``None``.  It holds numbers, a slot and (on a
device) events.  The operation that it waits for, with its tensor and group, is held from ``issued``
to ``arrived``, when something has to hold them anyway; never longer.

The training thread comes here straight from the backward pass, with cold caches: what counts is how
much code and memory a stamp touches.  So it only reads the clock and keeps a reference, and what is
known of an operation is looked up when it has arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .clocks import Clock, DeviceEvent, EventPool
from .layout import BucketSlot

__all__ = ["BucketCall", "DeviceCall", "Payload", "Round"]

Round = tuple[str, int, object, int, int, int]
"""Of one collective: kind, wire bytes, dtype, group size, the group's key and its workers."""


class Payload(Protocol):
    """What a call asks an operation when it has arrived."""

    def describe(self) -> Round | None:
        """Return what is known of the collective, ``None`` if nothing is."""


class Recorder(Protocol):
    """What calls need of a tracer."""

    clock: Clock
    event_pool: EventPool

    @property
    def holds(self) -> bool:
        """Whether an ended call is still under way to the ring; whoever holds it says when not."""

    @property
    def push(self) -> Callable[[BucketCall], None]:
        """Takes one ended call; never blocks."""


class BucketCall:
    """One call of a hook for one bucket, being stamped.

    ``marks`` holds two stamps for each round: issued, arrived; ``rounds`` says what it was.  The
    last round of a call that failed may lack its second stamp.  ``launched``, set by the wrapper,
    is ``None`` until the hook has returned; ``done`` is there once the call has ended,
    ``error_stage`` when there is an ``error``.
    """

    __slots__ = (
        "_issued",
        "_operation",
        "_recorder",
        "done",
        "error",
        "error_stage",
        "launched",
        "marks",
        "ready",
        "rounds",
        "shadow",
        "slot",
        "staged",
        "started",
        "step",
    )

    events: list[DeviceEvent] | None = None
    """On a device (``DeviceCall``) one event for each of ready, the marks, and done."""

    def __init__(  # noqa: PLR0917  # keywords cost time here
        self,
        slot: BucketSlot,
        step: int,
        ready: int,
        shadow: bool,
        staged: bool,
        recorder: Recorder,
    ) -> None:
        self.slot = slot
        self.step = step
        self.ready = ready
        self.shadow = shadow
        self.staged = staged
        self.started = ready
        self.launched: int | None = None
        self.marks: tuple[int, ...] = ()
        self.rounds: tuple[Round, ...] = ()
        self.error: str | None = None
        self._operation: Payload | None = None
        self._recorder = recorder

    def begun(self) -> None:
        """Stamp that the chain got its turn in the serial lane."""
        self.started = self._recorder.clock()

    def issued(self, operation: Payload) -> None:
        """Stamp that a collective is about to be issued."""
        self._operation = operation
        self._issued = self._recorder.clock()

    def arrived(self) -> None:
        """Stamp that the collective's result is there."""
        self._end_round(self._issued, self._recorder.clock())

    def finished(self) -> None:
        """Stamp that the bucket's result is there, and push the call."""
        self.done = self._recorder.clock()
        self._recorder.push(self)
        if self.slot.in_flight is self and not self._recorder.holds:
            self.slot.in_flight = None

    def failed(self, stage: str, error: BaseException) -> None:
        """Stamp that the hook raised in ``stage``; takes the place of ``finished``."""
        self.error_stage = stage
        self.error = f"{type(error).__name__}: {error}"
        if self._operation is not None:
            self._end_round(self._issued)
        self.finished()

    def _end_round(self, *marks: int) -> None:
        assert self._operation is not None
        operation, self._operation = self._operation, None
        try:
            known = operation.describe()
        except Exception:  # an operation of the user's own: training must not fail for a record
            known = None
        if known is None:
            # The call is then seen from outside only, as an opaque hook's.
            self.staged = False
        else:
            self.rounds += (known,)
            self.marks += marks
        if not self.staged:
            self.marks, self.rounds = (), ()


class DeviceCall(BucketCall):
    """A call for a bucket on a device: each stamp is an event on the current stream too."""

    __slots__ = ("events",)

    events: list[DeviceEvent]

    def __init__(  # noqa: PLR0917
        self,
        slot: BucketSlot,
        step: int,
        ready: int,
        shadow: bool,
        staged: bool,
        recorder: Recorder,
    ) -> None:
        super().__init__(slot, step, ready, shadow, staged, recorder)
        self.events = [recorder.event_pool.record()]

    def issued(self, operation: Payload) -> None:
        """Record an event, and stamp."""
        self.events.append(self._recorder.event_pool.record())
        super().issued(operation)

    def arrived(self) -> None:
        """Record an event, and stamp."""
        self.events.append(self._recorder.event_pool.record())
        super().arrived()

    def finished(self) -> None:
        """Record an event, stamp, and push the call."""
        self.events.append(self._recorder.event_pool.record())
        super().finished()
