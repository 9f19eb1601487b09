"""The stamps of one hook call: the only thing the training thread and its callbacks write.

    wrapper: BucketCall(...)   driver: issued / arrived / finished or failed   wrapper: returned
                                                      |
                                                      +--> pushed to the ring

A call is written by the training thread and then by one callback thread, never by both at once.
After it was pushed it is not touched, but for one stamp: a result can be there before the hook has
returned, and whoever reads ``launched`` must expect ``None``.  It holds numbers, a slot and (on a device) events.  The
operation that it waits for, with its tensor and group, is held from ``issued`` to ``arrived``, when
something has to hold them anyway; never longer.

The training thread comes here straight from the backward pass, with cold caches: what counts is how
much code and memory a stamp touches.  So it only reads the clock and keeps a reference, and what is
known of an operation is looked up when it has arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from .timing import Clock, DeviceEvent, EventPool

if TYPE_CHECKING:
    from .layout import BucketSlot

__all__ = ["BucketCall", "Payload", "Round"]

Round = tuple[str, int, object, int, int, int]
"""Of one collective: kind, wire bytes, dtype, group size, the group's key and its workers."""


class _Group(Protocol):
    @property
    def size(self) -> int: ...
    @property
    def key(self) -> int: ...
    @property
    def workers(self) -> int: ...


class Payload(Protocol):
    """What a call reads of an operation when it has arrived."""

    @property
    def kind(self) -> str:
        """The collective's name."""

    @property
    def wire_bytes(self) -> int:
        """Payload bytes of this rank."""

    @property
    def dtype(self) -> object:
        """The payload's dtype."""

    @property
    def info(self) -> _Group:
        """The group's facts."""


class Recorder(Protocol):
    """What calls need of a tracer."""

    clock: Clock
    push: Callable[[BucketCall], None]
    event_pool: EventPool


class BucketCall:
    """One call of a hook for one bucket, being stamped.

    ``marks`` holds two stamps for each round: issued, arrived.  ``rounds`` has an entry for each
    round that arrived or failed.  ``launched`` is ``None`` until the hook has returned.  ``events``
    holds, for a bucket on a device, one event for each of ready, the marks, and done.
    """

    __slots__ = (
        "_operation",
        "_recorder",
        "done",
        "error",
        "error_stage",
        "events",
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

    def __init__(
        self, slot: BucketSlot, step: int, ready: int, staged: bool, recorder: Recorder
    ) -> None:
        self.slot = slot
        self.step = step
        self.shadow = False
        self.staged = staged
        self.ready = ready
        self.started = ready
        self.launched: int | None = None
        self.done = ready
        self.marks: tuple[int, ...] = ()
        self.rounds: tuple[Round, ...] = ()
        self.error: str | None = None
        self.error_stage = ""
        self.events: list[DeviceEvent] | None = None
        self._operation: Payload | None = None
        self._recorder = recorder
        if slot.has_events:
            self.events = [recorder.event_pool.record()]

    def begun(self) -> None:
        """Stamp that the chain got its turn in the serial lane."""
        self.started = self._recorder.clock()

    def issued(self, operation: Payload) -> None:
        """Stamp that a collective is about to be issued."""
        self._operation = operation
        if self.events is not None:
            self.events.append(self._recorder.event_pool.record())
        self.marks += (self._recorder.clock(),)

    def arrived(self) -> None:
        """Stamp that the collective's result is there."""
        self.marks += (self._recorder.clock(),)
        if self.events is not None:
            self.events.append(self._recorder.event_pool.record())
        self._describe_round()

    def finished(self) -> None:
        """Stamp that the bucket's result is there, and push the call."""
        self.done = self._recorder.clock()
        if self.events is not None:
            self.events.append(self._recorder.event_pool.record())
        self.slot.in_flight = None
        self._recorder.push(self)

    def failed(self, stage: str, error: BaseException) -> None:
        """Stamp that the hook raised in ``stage``; takes the place of ``finished``."""
        self.error = f"{type(error).__name__}: {error}"
        self.error_stage = stage
        if self._operation is not None:
            self._describe_round()
        self.finished()

    def returned(self) -> None:
        """Stamp that the hook has returned to DDP."""
        self.launched = self._recorder.clock()

    def _describe_round(self) -> None:
        operation: Any = self._operation
        self._operation = None
        info = operation.info
        self.rounds += (
            (
                operation.kind,
                operation.wire_bytes,
                operation.dtype,
                info.size,
                info.key,
                info.workers,
            ),
        )
